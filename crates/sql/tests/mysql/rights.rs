//! Users with few rights, foreign tables, read-only servers.

use leasehold_core::{Engine, Fault, How, Inspect};
use leasehold_sql::mysql::{GRANTS, SCHEMA};
use leasehold_testkit::server::MariadbServer;

use crate::rig::{Rig, USER, as_user, claim, claim_and_hold, engine_at, is_mysql, use_every_statement};

/// The error of a claim that is refused.
async fn refusal(engine: &dyn Engine) -> leasehold_core::EngineError {
    engine.claim(&claim("a"), How::Create).await.unwrap_err()
}

#[tokio::test]
async fn the_rights_of_the_grants_file_suffice() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(USER);
    rig.server.query(GRANTS);
    let one = engine_at(&as_user(&rig));
    use_every_statement(&one, &engine_at(&as_user(&rig))).await;
    // The rights also suffice to delete old rows.
    rig.server.query("INSERT INTO leasehold_lock (name, token) VALUES ('old', 1)");
    crate::rig::until("the row is deleted", || {
        rig.server.query("SELECT COUNT(*) FROM leasehold_lock WHERE name = 'old'") == ["0"]
    })
    .await;
}

#[tokio::test]
async fn missing_create_rights_are_reported_with_the_remedy() {
    let rig = Rig::new();
    rig.server.query(USER);
    rig.server.query("GRANT SELECT ON locks.* TO locker@'%'");
    let error = refusal(&*engine_at(&as_user(&rig))).await;
    assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
    assert!(error.message.contains("leasehold schema"), "{error:?}");
    // A user who has not even the right to see whether the tables exist.
    rig.server.query("REVOKE SELECT ON locks.* FROM locker@'%'; GRANT CREATE VIEW ON locks.* TO locker@'%'");
    let error = refusal(&*engine_at(&as_user(&rig))).await;
    assert_eq!(error.fault, Fault::Denied, "{error:?}");
    assert!(error.message.contains("leasehold schema"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown() {
    let rig = Rig::new();
    rig.server.query(USER);
    let url = format!("//locker:hunter2@127.0.0.1:{}/locks", rig.server.port());
    let error = refusal(&*engine_at(&url)).await;
    assert_eq!(error.fault, Fault::Denied, "{error:?}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

/// The login plugins that MariaDB and MySQL recommend instead of `mysql_native_password`.
#[tokio::test]
async fn recommended_login_plugins_work() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    if is_mysql() {
        rig.server.query("CREATE USER locker@'%' IDENTIFIED WITH caching_sha2_password BY 'p@ss/word'");
    } else {
        rig.server.query("INSTALL SONAME 'auth_ed25519'");
        rig.server.query("CREATE USER locker@'%' IDENTIFIED VIA ed25519 USING PASSWORD('p@ss/word')");
    }
    rig.server.query(GRANTS);
    let engine = engine_at(&as_user(&rig));
    claim_and_hold(&*engine, &claim("a")).await;
    let url = format!("//locker:hunter2@127.0.0.1:{}/locks", rig.server.port());
    let error = refusal(&*engine_at(&url)).await;
    assert_eq!(error.fault, Fault::Denied, "{error:?}");
}

#[tokio::test]
async fn foreign_tables_are_refused() {
    let rig = Rig::new();
    rig.server.query("CREATE TABLE leasehold_meta (x int)");
    let error = refusal(&*rig.engine()).await;
    assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
    assert!(error.message.contains("not made by leasehold"), "{error:?}");
    rig.server.query("DROP TABLE leasehold_meta");
    rig.server.query(SCHEMA);
    rig.server.query("UPDATE leasehold_meta SET version = 0");
    let error = refusal(&*rig.engine()).await;
    assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
    assert!(error.message.contains("version 0"), "{error:?}");
    rig.server.query("UPDATE leasehold_meta SET version = 1, lineage = 'elsewhere'");
    let error = refusal(&*rig.engine()).await;
    assert!(error.message.contains("not made by leasehold"), "{error:?}");
}

/// Several first clients at the same time create one set of tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_clients_create_the_tables_together() {
    let rig = Rig::new();
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..12 {
        let engine = rig.engine();
        clients.spawn(
            async move { claim_and_hold(&*engine, &claim(&format!("n{number}"))).await.token.lineage },
        );
    }
    let lineages = clients.join_all().await;
    assert!(lineages.iter().all(|lineage| *lineage == lineages[0]), "{lineages:?}");
}

#[tokio::test]
async fn a_read_only_server_is_reported() {
    let mut rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(USER);
    rig.server.query(GRANTS);
    let engine = engine_at(&as_user(&rig));
    let held = claim("a");
    claim_and_hold(&*engine, &held).await;
    // Connected clients get this error, and so do new clients.
    rig.server.query("SET GLOBAL read_only = 1");
    for engine in [engine, rig.engine()] {
        let error = refusal(&*engine).await;
        assert_eq!(error.fault, Fault::Refused, "{error:?}");
        assert!(error.message.contains("name the primary"), "{error:?}");
    }
    // A server that never had the tables.
    rig.server = MariadbServer::start(&["--read-only=1"]);
    let error = refusal(&*rig.engine()).await;
    assert!(error.message.contains("name the primary"), "{error:?}");
}

/// The client that created the tables was killed before it inserted their row, or has not inserted it yet.
#[tokio::test]
async fn tables_without_their_row_are_completed() {
    let rig = Rig::new();
    claim_and_hold(&*rig.engine(), &claim("a")).await;
    rig.server.query("DELETE FROM leasehold_meta");
    assert!(rig.engine().list("").await.unwrap().is_empty(), "the tables do not count yet");
    claim_and_hold(&*rig.engine(), &claim("b")).await;
    assert_eq!(rig.server.query("SELECT version FROM leasehold_meta"), ["1"]);
}

//! What `diagnose` tells of good and of misconfigured servers.

use std::sync::Arc;

use leasehold_core::{Diagnostic, Env, Inspect, Level, Severity};
use leasehold_sql::{
    Encryption, ForeignTable, Layout, Prefixed, RowTable, Tls,
    postgres::{Config, SCHEMA, engine, foreign_table_engine, row_engine, session_engine},
};
use leasehold_testkit::server::{PgBouncer, PostgresServer};
use tokio_postgres::NoTls;

use crate::{
    rig::{Rig, acquire, config, until},
    rights::ROLES,
    session::rig::at_once,
};

/// The password of the URLs here, which nothing may show. The servers trust every user.
const CANARY: &str = "canary-hunter2";

/// What an engine tells.
fn told(rig: &Rig, engine: &dyn Inspect) -> Vec<Diagnostic> {
    let told = rig.run(engine.diagnose()).unwrap();
    for diagnostic in &told {
        let text = format!("{diagnostic:?}");
        assert!(!text.contains(CANARY), "{text}");
        assert!(!diagnostic.found.is_empty() && !diagnostic.found.contains('\n'), "{text}");
        let needs_advice = diagnostic.severity > Severity::Unknown && diagnostic.id != "postgres-tables";
        assert!(!(needs_advice && diagnostic.advice.is_empty()), "{text}");
    }
    told
}

/// The only diagnostic with this id.
fn one<'a>(told: &'a [Diagnostic], id: &str) -> &'a Diagnostic {
    let mut found = told.iter().filter(|diagnostic| diagnostic.id == id);
    let first = found.next().unwrap_or_else(|| panic!("{id} is missing: {told:?}"));
    assert_eq!(found.count(), 0, "{id} is there twice: {told:?}");
    first
}

/// Checks the severity of one diagnostic, and that its texts contain a word.
fn assert_told(told: &[Diagnostic], id: &str, severity: Severity, word: &str) {
    let diagnostic = one(told, id);
    assert_eq!(diagnostic.severity, severity, "{diagnostic:?}");
    let text = format!("{} {}", diagnostic.found, diagnostic.advice);
    assert!(text.contains(word), "{diagnostic:?}");
}

fn config_of(user: &str, port: u16) -> Config {
    Config::from_url(&format!("//{user}:{CANARY}@127.0.0.1:{port}/postgres")).unwrap()
}

fn sql(config: Config) -> impl Inspect {
    engine(config, &Env::system())
}

#[test]
fn a_good_server_has_only_good_diagnostics_and_stays_as_it_was() {
    let rig = Rig::of(PostgresServer::durable(&[]));
    let port = rig.server.port();
    let empty = told(&rig, &sql(config_of("postgres", port)));
    assert_told(&empty, "postgres-tables", Severity::Good, "do not exist");
    let tables = "SELECT relname FROM pg_class WHERE relname LIKE 'leasehold%'";
    assert_eq!(rig.server.query(tables), [""; 0], "nothing was created");
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let good = told(&rig, &sql(config_of("postgres", port)));
    for id in [
        "postgres-version",
        "postgres-role",
        "postgres-clock",
        "postgres-tls",
        "postgres-pooler",
        "postgres-idle-sessions",
        "postgres-connections",
        "postgres-transactions",
        "postgres-replicas",
        "postgres-rights",
        "postgres-memos",
        "postgres-table-locks",
        "postgres-autovacuum",
        "postgres-tables",
    ] {
        assert_told(&good, id, Severity::Good, "");
    }
    assert!(good.iter().all(|diagnostic| diagnostic.severity == Severity::Good), "{good:?}");
    let server = format!("127.0.0.1:{port}");
    assert_eq!(one(&good, "postgres-version").server.as_ref(), Some(&server));
    let prefixed = Prefixed::new(rig.engine(), "p/").unwrap();
    assert_told(&told(&rig, &prefixed), "postgres-role", Severity::Good, "primary");
}

#[test]
fn settings_that_harm_locks_are_told() {
    let settings = ["autovacuum=off", "idle_session_timeout=60s", "full_page_writes=off"];
    let rig = Rig::of(PostgresServer::durable(&settings));
    rig.server.query("ALTER ROLE postgres SET default_transaction_read_only = on");
    let found = told(&rig, &sql(config_of("postgres", rig.server.port())));
    assert_told(&found, "postgres-autovacuum", Severity::Warning, "autovacuum=on");
    assert_told(
        &found,
        "postgres-idle-sessions",
        Severity::Warning,
        "ALTER ROLE postgres SET idle_session_timeout",
    );
    assert_told(&found, "postgres-role", Severity::Broken, "default_transaction_read_only=off");
    let engine = rig.engine();
    let guarantee = rig.run(engine.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::BestEffort, "{guarantee}");
    assert!(guarantee.findings.iter().any(|finding| finding.what == "full_page_writes"), "{guarantee}");
}

#[test]
fn missing_rights_are_told_with_the_grants_that_give_them() {
    let rig = Rig::of(PostgresServer::durable(&["wal_level=logical"]));
    let port = rig.server.port();
    rig.server.query("CREATE ROLE newcomer LOGIN");
    let newcomer = told(&rig, &sql(config_of("newcomer", port)));
    assert_told(&newcomer, "postgres-rights", Severity::Broken, "leasehold schema");
    let elsewhere = config_of("newcomer", port).schema("mine").unwrap();
    assert_told(&told(&rig, &sql(elsewhere)), "postgres-rights", Severity::Broken, "may not create them");
    rig.server.query("GRANT CREATE ON DATABASE postgres TO newcomer");
    let elsewhere = config_of("newcomer", port).schema("mine").unwrap();
    assert_told(&told(&rig, &sql(elsewhere)), "postgres-rights", Severity::Good, "may create");
    rig.server.query(SCHEMA);
    rig.server.query(ROLES);
    let locker = told(&rig, &sql(config_of("leasehold", port)));
    assert_told(&locker, "postgres-rights", Severity::Good, "");
    assert_told(&locker, "postgres-memos", Severity::Good, "");
    assert_told(&locker, "postgres-transactions", Severity::Unknown, "GRANT pg_read_all_stats TO leasehold");
    assert_told(&locker, "postgres-replicas", Severity::Good, "no replica");
    let viewer = told(&rig, &sql(config_of("leasehold_viewer", port)));
    let grants = "GRANT INSERT, UPDATE, DELETE ON public.leasehold_lock TO leasehold_viewer";
    assert_told(&viewer, "postgres-rights", Severity::Broken, grants);
    assert_told(
        &viewer,
        "postgres-memos",
        Severity::Warning,
        "GRANT INSERT, UPDATE, DELETE ON public.leasehold_memo",
    );
    rig.server.query("REVOKE ALL ON leasehold_meta FROM leasehold");
    let blind = told(&rig, &sql(config_of("leasehold", port)));
    assert_told(&blind, "postgres-rights", Severity::Broken, "GRANT SELECT ON public.leasehold_meta");
    assert_told(&blind, "postgres-tables", Severity::Broken, "");
    // A user without rights does not see what receives the log; a superuser sees that it is no replica.
    rig.server.query("GRANT SELECT ON leasehold_meta TO leasehold");
    let _subscriber = rig.server.subscriber();
    until("the subscriber is connected", || {
        rig.server.query("SELECT count(*) FROM pg_stat_replication") == ["1"]
    });
    let unseen = told(&rig, &sql(config_of("leasehold", port)));
    assert_told(&unseen, "postgres-replicas", Severity::Good, "a logical subscriber");
    rig.server.query("UPDATE leasehold_meta SET version = 2");
    let newer = told(&rig, &sql(config_of("postgres", port)));
    assert_told(&newer, "postgres-tables", Severity::Broken, "version 2");
}

#[test]
fn a_pooler_is_told_and_where_its_listen_url_leads() {
    let (rig, other) = (Rig::new(), PostgresServer::start(&[]));
    let pooler = PgBouncer::start(rig.server.port());
    let pooled = || config_of("postgres", pooler.port());
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let alone = told(&rig, &sql(pooled()));
    assert_told(&alone, "postgres-pooler", Severity::Broken, "listen_url=postgres%3A%2F%2F");
    // That the tables cannot be used only follows from it.
    let bad = alone.iter().filter(|diagnostic| diagnostic.severity != Severity::Good);
    assert_eq!(bad.map(|diagnostic| diagnostic.id).collect::<Vec<_>>(), ["postgres-pooler"]);
    let listening = told(&rig, &sql(pooled().listen(config(&rig.server.url()))));
    assert_told(&listening, "postgres-pooler", Severity::Good, "leads past it");
    assert_told(&listening, "postgres-listen-url", Severity::Good, "the server behind the pooler");
    assert_told(&listening, "postgres-tables", Severity::Good, "");
    for (listen, word) in [
        (pooled(), "a pooler, too"),
        (config(&other.url()), "another server"),
        (config("postgres://postgres@127.0.0.1:1/postgres"), "cannot be used"),
    ] {
        let wrong = told(&rig, &sql(pooled().listen(listen)));
        assert_told(&wrong, "postgres-listen-url", Severity::Warning, word);
    }
}

#[test]
fn a_pooler_is_judged_by_whether_it_shares_the_sessions_of_holds() {
    let rig = Rig::new();
    let sessions = |pooler: &PgBouncer| {
        told(&rig, &session_engine(config_of("postgres", pooler.port()), at_once(), &Env::system()))
    };
    let pooler = PgBouncer::start(rig.server.port());
    assert_told(&sessions(&pooler), "postgres-pooler", Severity::Broken, "pool_mode = session");
    let table = RowTable::new("pg_class", "relname").unwrap();
    let rows = row_engine(config_of("postgres", pooler.port()), table);
    assert_told(&told(&rig, &rows), "postgres-pooler", Severity::Broken, "name the server itself");
    let pooler = PgBouncer::in_mode(rig.server.port(), "session");
    let found = sessions(&pooler);
    assert_told(&found, "postgres-pooler", Severity::Good, "a session of its own");
    // The questions after the check are in no transaction of the check.
    assert_told(&found, "postgres-lock-room", Severity::Good, "");
}

#[test]
fn the_lock_of_a_table_by_another_program_is_told() {
    let rig = Rig::new();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let engine = rig.engine();
    let url = rig.server.url();
    let (other, connection) = rig.run(tokio_postgres::connect(&url, NoTls)).unwrap();
    rig.spawn(connection);
    rig.run(other.batch_execute("SET application_name = 'migration'; BEGIN; LOCK TABLE leasehold_claim"))
        .unwrap();
    let locked = told(&rig, &*engine);
    assert_told(&locked, "postgres-table-locks", Severity::Warning, "leasehold_claim");
    assert_told(&locked, "postgres-table-locks", Severity::Warning, "of migration keeps the table");
    rig.run(other.batch_execute("COMMIT; BEGIN; SELECT FROM leasehold_lock FOR UPDATE")).unwrap();
    assert_told(&told(&rig, &*engine), "postgres-table-locks", Severity::Good, "");
    rig.run(other.batch_execute("COMMIT")).unwrap();
}

#[test]
fn a_clock_that_is_off_is_told() {
    let rig = Rig::of(PostgresServer::with_clock());
    for (seconds, severity, word) in [
        (3600, Severity::Warning, "ahead of"),
        (-3600, Severity::Warning, "behind"),
        (0, Severity::Good, "differs"),
    ] {
        rig.server.set_clock(seconds);
        let found = told(&rig, &sql(config_of("postgres", rig.server.port())));
        assert_told(&found, "postgres-clock", severity, word);
    }
}

#[test]
fn a_user_whose_connections_are_used_up_is_told() {
    let rig = Rig::new();
    rig.server.query("CREATE ROLE few LOGIN CONNECTION LIMIT 1");
    let found = told(&rig, &sql(config_of("few", rig.server.port())));
    assert_told(&found, "postgres-connections", Severity::Broken, "0 of 1 connections are free");
}

#[test]
fn every_host_of_the_url_is_looked_at() {
    let rig = Rig::of(PostgresServer::durable(&["wal_level=replica"]));
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let replica = rig.server.replica();
    until("the replica follows", || rig.server.query("SELECT count(*) FROM pg_stat_replication") == ["1"]);
    let (port, replica_port) = (rig.server.port(), replica.port());
    let hosts = |list: &str| sql(Config::from_url(&format!("//postgres:{CANARY}@{list}/postgres")).unwrap());
    let both = told(&rig, &hosts(&format!("127.0.0.1:{replica_port},127.0.0.1:{port}")));
    assert_told(&both, "postgres-primaries", Severity::Good, "one server");
    let roles: Vec<_> = both.iter().filter(|diagnostic| diagnostic.id == "postgres-role").collect();
    assert!(roles.len() == 2 && roles[0].found.contains("a replica"), "{roles:?}");
    assert_eq!(roles[1].server, Some(format!("127.0.0.1:{port}")));
    assert_told(&both, "postgres-replicas", Severity::Good, "for which commits do not wait");
    let alone = told(&rig, &hosts(&format!("127.0.0.1:{replica_port}")));
    assert_told(&alone, "postgres-primaries", Severity::Broken, "name the primary");
    let half = told(&rig, &hosts(&format!("127.0.0.1:1,127.0.0.1:{port}")));
    assert_told(&half, "postgres-server", Severity::Warning, "cannot be used");
    assert_told(&half, "postgres-primaries", Severity::Good, "one server");
    let nobody = hosts("127.0.0.1:1");
    let error = rig.run(nobody.diagnose()).unwrap_err();
    assert!(error.message.contains("cannot connect to 127.0.0.1:1"), "{error:?}");
    // Commits wait for another replica than the one that follows: this one may be promoted all the same.
    rig.server.query("ALTER SYSTEM SET synchronous_standby_names = 'elsewhere'");
    rig.server.query("SELECT pg_reload_conf()");
    until("the setting is in force", || rig.server.query("SHOW synchronous_standby_names") == ["elsewhere"]);
    let engine = rig.engine();
    assert_eq!(rig.run(engine.guarantee()).unwrap().level, Level::BestEffort);
    rig.server.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    rig.server.query("SELECT pg_reload_conf()");
    until("commits wait for the replica", || {
        rig.server.query("SELECT sync_state FROM pg_stat_replication") == ["sync"]
    });
    let guarantee = rig.run(engine.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::LeaseBounded, "{guarantee}");
    // A replica that was promoted while its primary runs: both accept writes.
    rig.server.query("ALTER SYSTEM RESET synchronous_standby_names");
    rig.server.query("SELECT pg_reload_conf()");
    replica.promote();
    let split = told(&rig, &hosts(&format!("127.0.0.1:{replica_port},127.0.0.1:{port}")));
    assert_told(&split, "postgres-primaries", Severity::Broken, "2 servers");
}

#[test]
fn an_encrypted_connection_is_told() {
    let server = PostgresServer::encrypted("anna", CANARY);
    let config = Config::from_url(&format!("//anna:{CANARY}@localhost:{}/postgres", server.port())).unwrap();
    let tls = Tls::system().roots(server.certificate("ca.pem"));
    let rig = Rig::of(server);
    let found = told(&rig, &sql(config.encryption(Encryption::Required(tls))));
    assert_told(&found, "postgres-tls", Severity::Good, "the certificate of the server expires in ");
}

#[test]
fn sessions_rows_and_tables_of_other_programs_are_looked_at() {
    let rig = Rig::new();
    let port = rig.server.port();
    let sessions = session_engine(config_of("postgres", port), at_once(), &Env::system());
    assert_told(&told(&rig, &sessions), "postgres-lock-room", Severity::Good, "locks of the server");
    rig.server.query("CREATE TABLE xxl_job_lock (lock_name varchar(50) PRIMARY KEY)");
    rig.server.query("CREATE ROLE poor LOGIN; GRANT SELECT ON xxl_job_lock TO poor");
    let rows = |user| row_engine(config_of(user, port), RowTable::new("xxl_job_lock", "lock_name").unwrap());
    assert_told(&told(&rig, &rows("postgres")), "postgres-rights", Severity::Good, "");
    let poor = told(&rig, &rows("poor"));
    assert_told(&poor, "postgres-rights", Severity::Broken, "GRANT UPDATE ON public.xxl_job_lock TO poor");
    let foreign = |user, table: ForeignTable| {
        Arc::new(foreign_table_engine(config_of(user, port), table, &Env::system()))
    };
    let shedlock = || ForeignTable::new(Layout::Shedlock);
    let missing = told(&rig, &*foreign("postgres", shedlock()));
    assert_told(&missing, "postgres-tables", Severity::Broken, "shedlock");
    rig.server.query(
        "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
         locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
    );
    let found = told(&rig, &*foreign("postgres", shedlock()));
    assert_told(&found, "postgres-tables", Severity::Good, "");
    assert_told(&found, "postgres-rights", Severity::Good, "");
    let poor = told(&rig, &*foreign("poor", shedlock()));
    assert_told(
        &poor,
        "postgres-rights",
        Severity::Broken,
        "GRANT SELECT, INSERT, UPDATE, DELETE ON public.shedlock",
    );
}

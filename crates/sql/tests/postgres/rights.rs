//! Refusals of the database: each has its own kind of error, and a remedy.

use leasehold_core::Inspect;
use leasehold_sql::postgres::SCHEMA;
use leasehold_testkit::server::{PostgresServer, psql};

use crate::rig::{Rig, acquire, engine_of, locks_of, until};

/// What docs/engines/postgres.md tells operators to run.
pub(crate) const ROLES: &str = include_str!("../../../../docs/engines/postgres-roles.sql");

fn refused(user: &str, port: u16) -> leasehold_core::Error {
    locks_of(user, port).mutex("a").blocking().try_acquire().unwrap_err()
}

#[test]
fn the_documented_roles_have_the_rights_they_need() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(ROLES);
    rig.server.query("CREATE TABLE other (a int)");
    let port = rig.server.port();
    let (locks, other) = (locks_of("leasehold", port), locks_of("leasehold", port));
    let guard = acquire(&locks, "a");
    let reader = other.rw("r").read().blocking().acquire().unwrap();
    let waiting = std::thread::spawn(move || acquire(&other, "a"));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    let viewer = engine_of("leasehold_viewer", port);
    let views = rig.run(async { Inspect::list(&*viewer, "").await }).unwrap();
    assert_eq!(views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["a", "r"]);
    for user in ["leasehold", "leasehold_viewer"] {
        let looks = locks_of(user, port);
        assert_eq!(rig.run(looks.show("a")).unwrap().waiters.len(), 1, "{user}");
        run_ok(&rig, looks.guarantee());
    }
    guard.release_blocking().unwrap();
    let next = waiting.join().unwrap();
    let broken = locks.break_hold("a", next.token().number, true);
    run_ok(&rig, broken);
    drop(next);
    reader.release_blocking().unwrap();
    let set = locks.all().mutex("s").read("t").permits("u", 1, 2);
    set.blocking().try_acquire().unwrap().release_blocking().unwrap();
    for forbidden in [
        "SELECT * FROM other",
        "DROP TABLE leasehold_lock",
        "DELETE FROM leasehold_meta",
        "CREATE TABLE t (a int)",
    ] {
        let output = psql(port, &["-U", "leasehold", "-c", forbidden]);
        assert!(!output.status.success(), "{forbidden}");
    }
    let error = refused("leasehold_viewer", port);
    assert!(error.is_denied(), "{error}");
}

fn run_ok<T, E: std::fmt::Debug>(rig: &Rig, work: impl Future<Output = Result<T, E>>) {
    rig.run(work).unwrap();
}

#[test]
fn missing_create_rights_are_reported_with_the_remedy() {
    let rig = Rig::new();
    rig.server.query("CREATE ROLE poor LOGIN");
    let error = refused("poor", rig.server.port());
    assert!(error.is_misconfigured(), "{error}");
    assert!(error.to_string().contains("leasehold schema"), "{error}");
    // The text that `leasehold schema` prints creates the tables, and can run twice.
    rig.server.query(SCHEMA);
    rig.server.query(SCHEMA);
    rig.server.query("GRANT SELECT ON leasehold_meta TO poor");
    rig.server.query("GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lock, leasehold_claim TO poor");
    acquire(&locks_of("poor", rig.server.port()), "a").release_blocking().unwrap();
}

#[test]
fn first_clients_create_the_tables_together() {
    let rig = Rig::new();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let locks = rig.locks();
            std::thread::spawn(move || acquire(&locks, "a").release_blocking().unwrap())
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(rig.server.query("SELECT count(*) FROM leasehold_meta"), ["1"]);
}

#[test]
fn table_creation_waits_for_another_client() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        let maker = "SELECT pg_advisory_lock(7810210); SELECT pg_sleep(1)";
        scope.spawn(|| rig.server.query(maker));
        let sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        until("the other client is creating them", || rig.server.query(sleeps).len() == 1);
        rig.locks().mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    });
}

#[test]
fn foreign_tables_and_versions_are_not_touched() {
    let rig = Rig::new();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    for version in [0, 2] {
        rig.server.query(&format!("UPDATE leasehold_meta SET version = {version}"));
        let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{error}");
        assert!(error.to_string().contains(&format!("version {version}")), "{error}");
    }
    for (columns, values) in [
        ("a int", "1"),
        ("version int, lineage text", "NULL, NULL"),
        ("version bigint, lineage text", "1, '1'"),
        ("version int, lineage text", "1, 'elsewhere'"),
    ] {
        rig.server.query(&format!("DROP TABLE leasehold_meta; CREATE TABLE leasehold_meta ({columns})"));
        for _ in 0..2 {
            let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
            assert!(
                error.is_misconfigured() && error.to_string().contains("not made by leasehold"),
                "{error}"
            );
            rig.server.query(&format!("INSERT INTO leasehold_meta VALUES ({values})"));
        }
    }
}

#[test]
fn a_read_only_server_is_refused() {
    let rig = Rig::new();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    rig.server.query("ALTER SYSTEM SET default_transaction_read_only = on");
    rig.server.query("SELECT pg_reload_conf()");
    until("the server refuses writes", || {
        let error = rig.locks().mutex("a").blocking().try_acquire();
        error.is_err_and(|error| error.to_string().contains("read-only transaction: name the primary"))
    });
}

#[test]
fn login_errors_are_reported_without_the_password() {
    let server = PostgresServer::encrypted("anna", "hunter2");
    let try_login = |url: &str| {
        let config = leasehold_sql::postgres::Config::from_url(url).unwrap().encryption(
            leasehold_sql::Encryption::Required(
                leasehold_sql::Tls::system().roots(server.certificate("ca.pem")),
            ),
        );
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter"), "{shown}");
        let engine = leasehold_sql::postgres::engine(config, &leasehold_core::Env::system());
        let locks = leasehold_core::Locks::builder(std::sync::Arc::new(engine)).build();
        locks.mutex("a").blocking().try_acquire().map(drop)
    };
    let port = server.port();
    try_login(&format!("//anna:hunter2@localhost:{port}/postgres")).unwrap();
    let error = try_login(&format!("//anna:hunter3@localhost:{port}/postgres")).unwrap_err();
    assert!(error.is_denied() && !error.to_string().contains("hunter"), "{error}");
    let error = try_login(&format!("//anna@localhost:{port}/postgres")).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("password missing"), "{error}");
    let error = try_login(&format!("//anna:hunter2@localhost:{port}/nothing")).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("nothing"), "{error}");
}

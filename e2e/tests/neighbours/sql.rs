//! Programs that lock by sessions of PostgreSQL and MySQL, with packages of PyPI, npm, Debian and Maven. Holders of
//! both sides are killed.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use leasehold::Locks;
use leasehold_testkit::server::{MariadbServer, PostgresServer};

use crate::{
    groups::{Contest, ROUNDS, SIDES, expect_no_overlap},
    java,
};

/// The time limit for events that come soon or never.
const PATIENCE: Duration = Duration::from_secs(180);

/// Lets programs of both sides share a name, while holders are killed.
fn share(url: &str, what: &str, program: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let theirs = program.iter().copied().map(str::to_owned).collect();
    let mut contest = Contest::of(dir.path(), url, theirs);
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(what));
}

/// Shares a name on a new PostgreSQL server with programs that run this script.
fn share_on_postgres(lock_key: &str, script: &[&str], package: &str) {
    let server = PostgresServer::start(&[]);
    let (url, port) = (session_url(&server.url(), lock_key), server.port().to_string());
    share(&url, package, &[script, &[package, &port, "shared"]].concat());
}

/// The same on MariaDB.
fn share_on_mariadb(lock_key: &str, package: &str) {
    let server = MariadbServer::start(&[]);
    let (url, port) = (session_url(&server.url(), lock_key), server.port().to_string());
    share(&url, package, &["python3", "sql_turns.py", package, &port, "shared"]);
}

/// The server has just started, so there is no lock delay.
fn session_url(url: &str, lock_key: &str) -> String {
    format!("{url}?hold=session&delay=0s&lock_key={lock_key}")
}

const PYTHON: [&str; 2] = ["python3", "sql_turns.py"];
const NODE: [&str; 2] = ["node", "sql_turns.cjs"];

#[test]
fn pypi_pals() {
    share_on_postgres("pals", &PYTHON, "pals-postgres");
}

#[test]
fn pypi_sqlalchemy_dlock_on_postgres() {
    share_on_postgres("sqlalchemy-dlock", &PYTHON, "sqlalchemy-dlock-postgres");
}

#[test]
fn pypi_sqlalchemy_dlock_on_mariadb() {
    share_on_mariadb("sqlalchemy-dlock", "sqlalchemy-dlock-mariadb");
}

#[test]
fn pypi_django_pglocks() {
    share_on_postgres("sha256be", &PYTHON, "django-pglocks-postgres");
}

#[test]
fn pypi_django_pglock() {
    share_on_postgres("sha256le", &PYTHON, "django-pglock-postgres");
}

#[test]
fn pypi_tooz_on_postgres() {
    share_on_postgres("tooz", &PYTHON, "tooz-postgres");
}

#[test]
fn pypi_tooz_on_mariadb() {
    share_on_mariadb("tooz", "tooz-mariadb");
}

#[test]
fn npm_advisory_lock() {
    share_on_postgres("advisory-lock", &NODE, "advisory-lock");
}

#[test]
fn npm_pg_mutex_lock() {
    share_on_postgres("advisory-lock", &NODE, "pg-mutex-lock");
}

#[test]
fn symfony_postgresql_store() {
    let server = PostgresServer::start(&[]);
    let (url, port) = (session_url(&server.url(), "symfony"), server.port().to_string());
    share(&url, "Symfony", &["php", "sql_turns.php", "session", "postgres", &port, "shared"]);
}

/// While leasehold holds, a migration of Flyway waits. While Flyway migrates, leasehold waits.
#[test]
fn flyway_on_postgres() {
    let server = PostgresServer::start(&[]);
    let asleep = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
    let asked = "SELECT query_start FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory%' \
                 AND pid <> pg_backend_pid() AND application_name LIKE '%JDBC%'";
    let times_asked = RefCell::new(BTreeSet::new());
    let migration = Migration {
        jdbc: format!("jdbc:postgresql://127.0.0.1:{}/postgres", server.port()),
        user: "postgres",
        text: "SELECT pg_sleep(600);",
        // Flyway tries again and again: it was refused at least once.
        waits: &|| {
            times_asked.borrow_mut().extend(server.query(asked));
            times_asked.borrow().len() > 1
        },
        sleeps: &|| server.query(&format!("SELECT pid {asleep}")).len() == 1,
        wake: &|| drop(server.query(&format!("SELECT pg_cancel_backend(pid) {asleep}"))),
    };
    exclude_flyway(&session_url(&server.url(), "flyway"), "public.flyway_schema_history", &migration);
}

#[test]
fn flyway_on_mariadb() {
    let server = MariadbServer::start(&[]);
    let running = |statement| {
        server.query(&format!("SELECT id FROM information_schema.processlist WHERE info LIKE '{statement}%'"))
    };
    let migration = Migration {
        jdbc: format!("jdbc:mariadb://127.0.0.1:{}/locks", server.port()),
        user: "root",
        text: "DO SLEEP(600);",
        waits: &|| !running("SELECT GET_LOCK").is_empty(),
        sleeps: &|| !running("DO SLEEP").is_empty(),
        wake: &|| running("DO SLEEP").iter().for_each(|id| drop(server.query(&format!("KILL {id}")))),
    };
    exclude_flyway(&session_url(&server.url(), "flyway"), "locks.flyway_schema_history", &migration);
}

/// A migration of Flyway that sleeps.
struct Migration<'a> {
    jdbc: String,
    user: &'static str,
    text: &'static str,
    /// Whether Flyway waits for its lock.
    waits: &'a dyn Fn() -> bool,
    sleeps: &'a dyn Fn() -> bool,
    /// Ends the sleep, and the migration with an error.
    wake: &'a dyn Fn(),
}

fn exclude_flyway(url: &str, table: &str, migration: &Migration<'_>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("V1__sleep.sql"), migration.text).unwrap();
    let locks = Locks::connect(url).unwrap();
    let guard = locks.mutex(table).blocking().acquire_within(PATIENCE).unwrap();
    let directory = dir.path().display().to_string();
    let _flyway = java::start_class("FlywayMigration", &[&migration.jdbc, migration.user, &directory]);
    until("Flyway waits", migration.waits);
    assert!(!(migration.sleeps)() && guard.check());
    guard.release_blocking().unwrap();
    until("the migration sleeps", migration.sleeps);
    assert!(locks.mutex(table).blocking().try_acquire().unwrap_err().is_taken());
    (migration.wake)();
    locks.mutex(table).blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
}

fn until(what: &str, done: &dyn Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

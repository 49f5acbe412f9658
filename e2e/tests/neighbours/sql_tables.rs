//! Programs that lock in tables: ShedLock and Liquibase (Java), Symfony's PdoStore and Laravel's DatabaseStore (PHP),
//! and programs that insert and delete a row by the server's own client. Leasehold uses the same tables by `layout=`.

use std::{process::Command, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::{MariadbServer, PostgresServer};

use crate::{
    groups::{Contest, ROUNDS, SIDES, expect_no_overlap},
    java,
    packages::Neighbour,
};

/// A server: its URL for us, its URL of JDBC, and how its operator runs a statement.
struct Site<'a> {
    url: String,
    jdbc: String,
    query: &'a dyn Fn(&str) -> Vec<String>,
}

fn on_postgres(test: impl Fn(&Site<'_>)) {
    let server = PostgresServer::start(&[]);
    let address = format!("127.0.0.1:{}/postgres", server.port());
    let (url, jdbc) =
        (format!("postgres://postgres@{address}"), format!("jdbc:postgresql://{address}?user=postgres"));
    test(&Site { url, jdbc, query: &|sql| server.query(sql) });
}

fn on_mariadb(test: impl Fn(&Site<'_>)) {
    let server = MariadbServer::start(&[]);
    let jdbc = format!("jdbc:mariadb://127.0.0.1:{}/locks?user=root", server.port());
    test(&Site { url: server.url(), jdbc, query: &|sql| server.query(sql) });
}

/// Programs of both sides share a lock while their holders are killed. No sections overlap, and our tokens grow.
fn kill_holders(url: &str, theirs: Vec<String>, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut contest = Contest::of(dir.path(), url, theirs);
    for _ in 0..ROUNDS {
        SIDES.iter().for_each(|side| contest.kill(side));
    }
    expect_no_overlap(&contest.finish(what));
}

const SHEDLOCK_ON_POSTGRES: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
const SHEDLOCK_ON_MARIADB: &str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
    locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

fn shedlock(site: &Site<'_>) {
    let url = format!("{}?layout=shedlock", site.url);
    let theirs = java::command_line_of("SqlTables", &["until", "shedlock", &site.jdbc, "shared"]);
    kill_holders(&url, theirs, "ShedLock");
}

#[test]
fn shedlock_on_postgres() {
    on_postgres(|site| {
        (site.query)(SHEDLOCK_ON_POSTGRES);
        shedlock(site);
    });
}

#[test]
fn shedlock_on_mariadb() {
    on_mariadb(|site| {
        (site.query)(SHEDLOCK_ON_MARIADB);
        shedlock(site);
    });
}

/// Programs in PHP in a table that leasehold has made.
fn in_our_table(site: &Site<'_>, [layout, database, prefix]: [&str; 3]) {
    let url = format!("{}?layout={layout}&create=yes{prefix}", site.url);
    let made = Locks::connect(&url).unwrap().mutex("shared").blocking().acquire();
    made.unwrap().release_blocking().unwrap();
    let port = site.url.rsplit([':', '/']).nth(1).unwrap();
    let theirs = ["php", "sql_turns.php", layout, database, port, "shared"].map(str::to_owned).to_vec();
    kill_holders(&url, theirs, layout);
}

#[test]
fn symfony_on_postgres() {
    on_postgres(|site| in_our_table(site, ["symfony", "postgres", ""]));
}

#[test]
fn symfony_on_mariadb() {
    on_mariadb(|site| in_our_table(site, ["symfony", "mariadb", ""]));
}

#[test]
fn laravel_on_postgres() {
    on_postgres(|site| in_our_table(site, ["laravel", "postgres", "&prefix=app_"]));
}

#[test]
fn laravel_on_mariadb() {
    on_mariadb(|site| in_our_table(site, ["laravel", "mariadb", "&prefix=app_"]));
}

/// The row of a killed Liquibase stays. Only an operator ends it.
fn liquibase(site: &Site<'_>) {
    let url = format!("{}?layout=liquibase", site.url);
    let hold = || java::start_class("SqlTables", &["hold", "liquibase", &site.jdbc, "1"]);
    // Liquibase makes its own table.
    let mut theirs = hold();
    assert_eq!(theirs.first_line(), "held");
    let locks = Locks::connect(&url).unwrap();
    assert!(locks.mutex("1").blocking().try_acquire().unwrap_err().is_taken());
    theirs.finish();
    let guard = locks.mutex("1").blocking().acquire().unwrap();
    let mut theirs = hold();
    assert_eq!(theirs.first_line(), "taken");
    theirs.finish();
    assert!(guard.check());
    guard.release_blocking().unwrap();
    let mut killed = hold();
    assert_eq!(killed.first_line(), "held");
    drop(killed);
    let request = locks.mutex("1").blocking();
    assert!(request.acquire_within(Duration::from_secs(1)).unwrap_err().is_timed_out());
    let view = locks.show_blocking("1").unwrap();
    assert!(view.holders[0].foreign && view.holders[0].remaining.is_none(), "{view:?}");
    locks.break_hold_blocking("1", view.holders[0].token.unwrap(), true).unwrap();
    request.acquire().unwrap().release_blocking().unwrap();
    let mut theirs = hold();
    assert_eq!(theirs.first_line(), "held");
    theirs.finish();
}

#[test]
fn liquibase_on_postgres() {
    on_postgres(liquibase);
}

#[test]
fn liquibase_on_mariadb() {
    on_mariadb(liquibase);
}

/// A table into which the lock is inserted as a row. The row of a killed holder of ours stays, too.
fn inserted_rows(site: &Site<'_>) {
    (site.query)(
        "CREATE TABLE method_lock (method_name VARCHAR(64) NOT NULL PRIMARY KEY, description VARCHAR(255))",
    );
    let url = format!("{}?layout=insert&table=method_lock&column=method_name", site.url);
    let locks = Locks::connect(&url).unwrap();
    let theirs_has = || (site.query)("SELECT method_name FROM method_lock") == ["nightly"];
    (site.query)("INSERT INTO method_lock VALUES ('nightly', 'since last year')");
    assert!(locks.mutex("nightly").blocking().try_acquire().unwrap_err().is_taken());
    (site.query)("DELETE FROM method_lock WHERE method_name = 'nightly'");
    let mut ours = holder(&url, "nightly");
    assert!(ours.first_line().parse::<u64>().is_ok_and(|token| token > 0));
    assert!(theirs_has(), "their insert would fail");
    drop(ours);
    assert!(theirs_has(), "nothing ends the row of a killed holder");
    let view = locks.show_blocking("nightly").unwrap();
    locks.break_hold_blocking("nightly", view.holders[0].token.unwrap(), true).unwrap();
    assert!(!theirs_has());
    locks.mutex("nightly").blocking().acquire().unwrap().release_blocking().unwrap();
}

/// A process of ours that holds the lock until it is killed.
fn holder(url: &str, name: &str) -> Neighbour {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-e2e"));
    command.args(["holder", url, name, "30000"]);
    Neighbour::run(command)
}

#[test]
fn rows_inserted_by_hand_on_postgres() {
    on_postgres(inserted_rows);
}

#[test]
fn rows_inserted_by_hand_on_mariadb() {
    on_mariadb(inserted_rows);
}

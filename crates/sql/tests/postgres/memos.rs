//! The table of memos: the rights on it, and databases whose tables an earlier version of leasehold made.

use std::{convert::Infallible, time::Duration};

use leasehold_core::{Answer, Engine, Guard, How, Locks, MIN_MEMO_KEEP, MemoKind, NewMemo};
use leasehold_sql::postgres::SCHEMA;
use leasehold_testkit::server::{PgBouncer, PostgresServer};
use tokio_postgres::NoTls;

use crate::{
    rig::{Rig, acquire, locks_of, until},
    statements,
};

const HOUR: Duration = Duration::from_secs(3600);
/// What an earlier version of leasehold made lacks this table.
const WITHOUT_MEMOS: &str = "DROP TABLE leasehold_memo";

fn memo(bytes: &str, keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

#[test]
fn the_documented_roles_write_read_and_delete_memos() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(crate::rights::ROLES);
    let port = rig.server.port();
    let (locks, viewer) = (locks_of("leasehold", port), locks_of("leasehold_viewer", port));
    let guard = acquire(&locks, "a");
    guard.write_memo_blocking(memo("x", HOUR)).unwrap();
    let read = viewer.read_memo_blocking("a").unwrap().unwrap();
    assert_eq!((&read.bytes[..], read.is_held, read.token), (&b"x"[..], true, guard.token()));
    guard.release_with_memo_blocking(memo("", MIN_MEMO_KEEP)).unwrap();
    until("the ended memo is deleted", || rig.server.query("SELECT name FROM leasehold_memo").is_empty());
    assert_eq!(viewer.read_memo_blocking("a").unwrap(), None);
}

#[test]
fn tables_without_memos_get_them_with_the_first_memo() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(WITHOUT_MEMOS);
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    assert_eq!(rig.locks().read_memo_blocking("a").unwrap(), None);
    guard.release_with_memo_blocking(memo("x", HOUR)).unwrap();
    assert_eq!(rig.locks().read_memo_blocking("a").unwrap().unwrap().bytes, b"x");
}

#[test]
fn a_user_without_the_right_to_create_the_table_gets_the_remedy_and_keeps_the_hold() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(crate::rights::ROLES);
    rig.server.query(WITHOUT_MEMOS);
    let locks = locks_of("leasehold", rig.server.port());
    let guard = acquire(&locks, "a");
    let error = guard.write_memo_blocking(memo("x", HOUR)).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("leasehold schema"), "{error}");
    guard.confirm_blocking().unwrap();
    rig.server.query(SCHEMA);
    rig.server.query("GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_memo TO leasehold");
    guard.write_memo_blocking(memo("x", HOUR)).unwrap();
    guard.release_blocking().unwrap();
}

/// An earlier version of leasehold leaves the name of the table free, and whoever may create tables can take it.
#[test]
fn an_unusable_table_of_memos_stops_no_lock() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(crate::rights::ROLES);
    rig.server.query("CREATE ROLE mallory");
    let own_table = SCHEMA.split("\n\n").find(|part| part.contains("leasehold_memo (")).unwrap();
    for (made, cause) in [
        ("CREATE TABLE leasehold_memo (a int)".to_owned(), "column"),
        (
            "CREATE TABLE leasehold_memo (a int); ALTER TABLE leasehold_memo OWNER TO mallory".to_owned(),
            "mallory",
        ),
        (format!("{own_table} CREATE RULE r AS ON DELETE TO leasehold_memo DO NOTHING"), "a rule"),
        ("CREATE VIEW leasehold_memo AS SELECT 1 AS name".to_owned(), "view"),
    ] {
        rig.server.query(&format!("DROP TABLE leasehold_memo; {made}"));
        let locks = locks_of("leasehold", rig.server.port());
        let guard = acquire(&locks, "a");
        rig.run(locks.show("a")).unwrap();
        let errors = [
            guard.write_memo_blocking(memo("x", HOUR)).unwrap_err(),
            locks.read_memo_blocking("a").unwrap_err(),
        ];
        for error in errors {
            let message = error.to_string();
            assert!(error.is_misconfigured() && message.contains("leasehold_memo"), "{error}");
            assert!(message.contains(cause), "{error}");
        }
        guard.release_blocking().unwrap();
    }
}

/// The documented role and the right to create tables, with and without a pooler.
#[test]
fn the_right_to_create_tables_suffices_for_the_table_of_memos() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(crate::rights::ROLES);
    rig.server.query("GRANT CREATE ON SCHEMA public TO leasehold");
    let pooler = PgBouncer::start(rig.server.port());
    let behind_pooler = || {
        let url = format!("postgres://leasehold@127.0.0.1:{}/postgres", pooler.port());
        let direct = format!("postgres://leasehold@127.0.0.1:{}/postgres", rig.server.port());
        let config = crate::rig::config(&url).listen(crate::rig::config(&direct));
        let engine = leasehold_sql::postgres::engine(config, &leasehold_core::Env::system());
        Locks::builder(std::sync::Arc::new(engine)).build()
    };
    for locks in [locks_of("leasehold", rig.server.port()), behind_pooler()] {
        rig.server.query(WITHOUT_MEMOS);
        let guard = acquire(&locks, "a");
        guard.release_with_memo_blocking(memo("x", HOUR)).unwrap();
        assert_eq!(locks.read_memo_blocking("a").unwrap().unwrap().bytes, b"x");
    }
}

/// So many memos that have ended that several statements are needed to delete them.
const MANY: &str = "INSERT INTO leasehold_memo SELECT 'ended' || i, 'once', decode(repeat('ab', 16), 'hex'), 1, '1', 1, NULL, 1, '' \
    FROM generate_series(1, 8000) AS i";
/// One memo that has ended.
const ONE: &str = "INSERT INTO leasehold_memo VALUES ('ended', 'once', decode(repeat('ab', 16), 'hex'), 1, '1', 1, NULL, 1, '')";

#[test]
fn one_sweep_deletes_all_ended_memos() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(MANY);
    let _guard = acquire(&rig.locks(), "a");
    until("they are deleted", || rig.server.query("SELECT 1 FROM leasehold_memo LIMIT 1").is_empty());
}

/// Its number tells a late write of the same hold from a later one.
#[test]
fn an_ended_memo_stays_until_the_hold_of_its_writer_ends() {
    let rig = Rig::new();
    let locks = rig.locks();
    let names = || rig.server.query("SELECT name FROM leasehold_memo");
    let guard = acquire(&locks, "a");
    guard.write_memo_blocking(memo("x", MIN_MEMO_KEEP)).unwrap();
    until("it ends", || locks.read_memo_blocking("a").unwrap().is_none());
    rig.server.query(ONE);
    until("a sweep deletes the memo without a hold", || !names().contains(&"ended".to_owned()));
    assert_eq!(names(), ["a"]);
    guard.release_blocking().unwrap();
    until("a sweep deletes it", || names().is_empty());
}

#[test]
fn a_client_whose_claim_waits_deletes_ended_memos() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(crate::rights::ROLES);
    let holder = rig.engine();
    assert!(matches!(rig.run(holder.claim(&rig.claim("n"), How::Create)), Ok(Answer::Held(_))));
    // The hold stays; no other client sweeps.
    drop(holder);
    let (waiter, clock) = statements::client(&rig);
    assert!(matches!(rig.run(waiter.claim(&rig.claim("n"), How::Create)), Ok(Answer::Waiting(_))));
    rig.server.query(ONE);
    clock.advance(Duration::from_secs(200));
    until("it is deleted", || rig.server.query("SELECT 1 FROM leasehold_memo").is_empty());
}

/// So what it says about the memo and about the hold is of one moment.
#[test]
fn a_memo_is_read_by_one_statement() {
    let rig = Rig::of(PostgresServer::start(&["shared_preload_libraries=pg_stat_statements"]));
    for statement in ["CREATE EXTENSION pg_stat_statements", SCHEMA, crate::rights::ROLES] {
        rig.server.query(statement);
    }
    acquire(&rig.locks(), "a").release_with_memo_blocking(memo("x", HOUR)).unwrap();
    let reader = locks_of("leasehold_viewer", rig.server.port());
    let read = || assert_eq!(reader.read_memo_blocking("a").unwrap().unwrap().bytes, b"x");
    read();
    let calls = || -> u64 {
        let sum =
            "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE userid = 'leasehold_viewer'::regrole";
        rig.server.query(sum)[0].parse().unwrap()
    };
    let before = calls();
    read();
    read();
    assert_eq!(calls() - before, 2);
}

/// Another session keeps the row of the name locked for longer than the lock timeout of our sessions.
#[test]
fn a_write_waits_for_a_locked_row_and_reads_everything_under_its_lock_in_one_round_trip() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let locks = Locks::builder(engine).build();
    let guard = acquire(&locks, "a");
    // Now the connection knows all tables and statements.
    guard.write_memo_blocking(memo("first", HOUR)).unwrap();
    let (blocker, connection) = rig.run(tokio_postgres::connect(&rig.server.url(), NoTls)).unwrap();
    rig.spawn(connection);
    let block = "BEGIN; SELECT FROM leasehold_lock WHERE name = 'a' FOR UPDATE";
    rig.run(blocker.batch_execute(block)).unwrap();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| guard.write_memo_blocking(memo("second", HOUR)));
        let long_waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'leasehold' AND wait_event_type = 'Lock' \
            AND query_start < clock_timestamp() - interval '400 ms'";
        until("the write waits longer than the lock timeout", || !rig.server.query(long_waits).is_empty());
        proxy.hold_answers();
        rig.run(blocker.batch_execute("ROLLBACK")).unwrap();
        let last = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'leasehold' AND state = 'idle in transaction' \
            AND query LIKE '%left(kind, 64), id, number, ends%'";
        until("the head of the memo was read too", || !rig.server.query(last).is_empty());
        proxy.release_answers();
        written.join().unwrap().unwrap();
    });
    assert_eq!(rig.locks().read_memo_blocking("a").unwrap().unwrap().bytes, b"second");
    guard.release_blocking().unwrap();
}

/// How many repeats the next test counts: far more than the statements of the maintenance meanwhile.
const REPEATS: u64 = 100;

#[test]
fn a_repeat_of_stored_work_costs_one_statement() {
    let rig = Rig::of(PostgresServer::start(&["shared_preload_libraries=pg_stat_statements"]));
    for statement in ["CREATE EXTENSION pg_stat_statements", SCHEMA, crate::rights::ROLES] {
        rig.server.query(statement);
    }
    let paid = |_: &Guard| Ok::<_, Infallible>("paid");
    let locks = locks_of("leasehold", rig.server.port());
    assert!(!locks.once("k").run_blocking(paid).unwrap().is_replayed());
    let statements = || -> u64 {
        let query = "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE userid = 'leasehold'::regrole";
        rig.server.query(query)[0].parse().unwrap()
    };
    let before = statements();
    for _ in 0..REPEATS {
        assert!(locks.once("k").run_blocking(paid).unwrap().is_replayed());
    }
    let each = (statements() - before) as f64 / REPEATS as f64;
    assert!((1.0..1.5).contains(&each), "{each} statements for a repeat");
}

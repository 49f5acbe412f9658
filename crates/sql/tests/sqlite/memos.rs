//! The table of memos: files that an earlier version of leasehold made, and a restart of the machine.

use std::time::Duration;

use leasehold_core::{Locks, MIN_MEMO_KEEP, MemoKind, NewMemo};

use crate::rig::{PATIENCE, Rig};

const HOUR: Duration = Duration::from_secs(3600);

fn memo(bytes: &str, keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

/// Writes a memo that is kept for an hour, and closes the file.
fn write(rig: &Rig, bytes: &str) {
    let locks = Locks::new(rig.engine());
    let guard = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
    guard.release_with_memo_blocking(memo(bytes, HOUR)).unwrap();
    locks.close_blocking(PATIENCE);
}

fn read(rig: &Rig) -> Option<leasehold_core::Memo> {
    Locks::new(rig.engine()).read_memo_blocking("a").unwrap()
}

#[test]
fn a_file_without_memos_gets_them() {
    let rig = Rig::new();
    write(&rig, "lost");
    // A file of an earlier version lacks the table.
    rig.execute("DROP TABLE leasehold_memo");
    assert_eq!(read(&rig), None);
    write(&rig, "kept");
    assert_eq!(read(&rig).unwrap().bytes, b"kept");
}

#[test]
fn an_ended_memo_is_deleted() {
    let rig = Rig::new();
    let locks = Locks::new(rig.engine());
    let guard = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
    guard.release_with_memo_blocking(memo("x", MIN_MEMO_KEEP)).unwrap();
    crate::until::until("the ended memo is deleted", || {
        rig.query("SELECT name FROM leasehold_memo").is_empty()
    });
}

/// So many that several statements are needed to delete them.
#[test]
fn one_sweep_deletes_all_ended_memos() {
    let rig = Rig::new();
    write(&rig, "x");
    rig.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000) \
         INSERT INTO leasehold_memo SELECT 'ended' || i, 'once', zeroblob(16), 1, '1', 1, NULL, 1, 1, 1, x'' FROM n; \
         DELETE FROM leasehold_memo WHERE name = 'a'",
    );
    let locks = Locks::new(rig.engine());
    let _guard = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
    crate::until::until("they are deleted", || {
        rig.query("SELECT name FROM leasehold_memo LIMIT 1").is_empty()
    });
}

/// Its number tells a late write of the same hold from a later one.
#[test]
fn an_ended_memo_stays_until_the_hold_of_its_writer_ends() {
    let rig = Rig::new();
    let locks = Locks::new(rig.engine());
    let count =
        |condition: &str| rig.query(&format!("SELECT name FROM leasehold_memo WHERE {condition}")).len();
    let guard = locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
    guard.write_memo_blocking(memo("x", MIN_MEMO_KEEP)).unwrap();
    crate::until::until("it ends", || locks.read_memo_blocking("a").unwrap().is_none());
    rig.execute(
        "INSERT INTO leasehold_memo VALUES ('ended', 'once', zeroblob(16), 1, '1', 1, NULL, 1, 1, 1, x'')",
    );
    crate::until::until("a sweep deletes the memo without a hold", || count("name = 'ended'") == 0);
    assert_eq!(count("name = 'a'"), 1);
    guard.release_blocking().unwrap();
    crate::until::until("a sweep deletes it", || count("true") == 0);
}

#[test]
fn a_memo_outlives_a_restart_of_the_machine_and_then_ends_by_the_time_of_day() {
    let rig = Rig::new();
    write(&rig, "kept");
    // As after a restart: the times in the file mean nothing now.
    rig.execute("UPDATE leasehold_meta SET boot = 'another'; UPDATE leasehold_memo SET ends = 1");
    let kept = read(&rig).unwrap();
    assert!(kept.left <= HOUR && kept.left > HOUR / 2 && !kept.is_held, "{kept:?}");
    // The time of day was set back: for one more hour at most.
    rig.execute(
        "UPDATE leasehold_meta SET boot = 'another'; UPDATE leasehold_memo SET day_ends = day_ends * 2",
    );
    assert!(read(&rig).unwrap().left <= HOUR);
    rig.execute("UPDATE leasehold_meta SET boot = 'another'; UPDATE leasehold_memo SET day_ends = 1");
    assert_eq!(read(&rig), None);
}

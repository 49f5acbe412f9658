//! Several names in one transaction.

use leasehold_core::{All, Locks, MAX_NAMES_AT_ONCE};

use crate::rig::Rig;

/// Names in the order in which they are locked.
fn set(locks: &Locks, count: usize) -> All {
    (0..count).fold(locks.all(), |all, number| all.mutex(format!("n{number:03}")))
}

/// How many transactions were begun and committed.
fn transactions(rig: &Rig) -> [u64; 2] {
    ["Com_begin", "Com_commit"].map(|name| {
        let rows = rig.server.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        rows[0].rsplit('|').next().unwrap().parse().unwrap()
    })
}

#[test]
fn a_set_is_one_transaction() {
    let rig = Rig::new();
    let locks = Locks::builder(rig.engine()).build();
    set(&locks, 2).blocking().acquire().unwrap().release_blocking().unwrap();
    let [begun, committed] = transactions(&rig);
    let guards = set(&locks, MAX_NAMES_AT_ONCE).blocking().acquire().unwrap();
    assert_eq!(transactions(&rig), [begun + 1, committed + 1]);
    assert!(guards.check());
    let held = rig.server.query("SELECT count(*) FROM leasehold_lock WHERE holder IS NOT NULL");
    assert_eq!(held, ["128"]);
    guards.release_blocking().unwrap();
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

/// R24.
#[test]
fn an_unusable_row_is_named_and_no_other_name_is_held() {
    let rig = Rig::new();
    let locks = Locks::builder(rig.engine()).build();
    set(&locks, 2).blocking().acquire().unwrap().release_blocking().unwrap();
    rig.server.query("INSERT INTO leasehold_lock (name, token) VALUES ('n002', 9223372036854775807)");
    let error = set(&locks, 4).blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("n002"), "{error}");
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

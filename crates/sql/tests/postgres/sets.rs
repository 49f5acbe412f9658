//! Several names in one transaction.

use leasehold_core::{All, Locks, MAX_NAMES_AT_ONCE};

use crate::rig::Rig;

/// Names in the order in which they are locked.
fn set(locks: &Locks, count: usize) -> All {
    (0..count).fold(locks.all(), |all, number| all.mutex(format!("n{number:03}")))
}

/// The transaction that last wrote the row of each name.
const WRITERS: &str =
    "SELECT count(*), count(DISTINCT xmin::text) FROM leasehold_lock WHERE holder IS NOT NULL";

#[test]
fn a_set_is_one_transaction() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guards = set(&locks, MAX_NAMES_AT_ONCE).blocking().acquire().unwrap();
    assert_eq!(rig.server.query(WRITERS), ["128|1"]);
    assert!(guards.check());
    guards.release_blocking().unwrap();
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

/// R24.
#[test]
fn an_unusable_row_is_named_and_no_other_name_is_held() {
    let rig = Rig::new();
    let locks = rig.locks();
    set(&locks, 2).blocking().acquire().unwrap().release_blocking().unwrap();
    rig.server.query("INSERT INTO leasehold_lock (name, token) VALUES ('n002', 9223372036854775807)");
    let error = set(&locks, 4).blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("n002"), "{error}");
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

//! Several names in one transaction.

use leasehold_core::{All, Locks};

use crate::rig::Rig;

/// Names in the order in which they are locked.
fn set(locks: &Locks, count: usize) -> All {
    (0..count).fold(locks.all(), |all, number| all.mutex(format!("n{number:03}")))
}

/// R24: the number is too large for a token, the text is no token.
#[test]
fn an_unusable_row_is_named_and_no_other_name_is_held() {
    for token in ["9223372036854775807", "'green'"] {
        let rig = Rig::new();
        let locks = Locks::builder(rig.engine()).build();
        set(&locks, 2).blocking().acquire().unwrap().release_blocking().unwrap();
        rig.execute(&format!(
            "PRAGMA ignore_check_constraints = 1; INSERT INTO leasehold_lock (name, token) VALUES ('n002', {token})"
        ));
        let error = set(&locks, 4).blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("n002"), "{token}: {error}");
        assert_eq!(rig.remaining_rows(), [""; 0]);
    }
}

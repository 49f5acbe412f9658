//! What a directory holds may be larger than what clients take in one answer by default.

use crate::rig::Rig;

/// As much as one word of a command line may be.
const VALUE: usize = 100_000;
/// Together more than 4 MB.
const KEYS: usize = 45;

#[test]
fn large_values_of_other_programs_are_no_obstacle() {
    let rig = Rig::new();
    let value = "x".repeat(VALUE);
    for key in 0..KEYS {
        rig.server.command(&["put", &format!("/locks/a/{key}"), &value]);
    }
    let shown = rig.show("a");
    assert_eq!((shown.holders.len(), shown.waiters.len()), (1, KEYS - 1));
    let locks = rig.locks();
    assert_eq!(rig.run(locks.list("")).unwrap().len(), 1);
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    let permits = locks.semaphore("a", 2);
    assert!(permits.blocking().try_acquire().unwrap_err().is_misconfigured());
}

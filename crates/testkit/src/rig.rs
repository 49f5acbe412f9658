//! What the tests of engines with a server share.

use std::time::Duration;

use leasehold_core::{Endpoint, Guard, Locks};

/// Not a measure of speed: for what never comes if it does not come soon.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many cases of the suite run at once: most of them wait, and more would keep the machine from what else runs.
pub const AT_ONCE: usize = 16;

/// Acquires a mutex, as a program without an executor does.
///
/// # Panics
/// When that fails.
pub fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).blocking().acquire_within(PATIENCE).expect("the lock is free before long")
}

/// A server on this machine.
#[must_use]
pub fn local(port: u16) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

//! Shared parts of the tests of engines with a server.

use std::time::Duration;

use leasehold_core::{Endpoint, Guard, Locks};

/// The time limit of waits for an event. A test fails at this limit only if the event never happens.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The number of cases of the suite that run in parallel. Most of them wait. More cases would take processor time from
/// other programs.
pub const AT_ONCE: usize = 16;

/// Acquires a mutex with the blocking interface, as a program without an executor does.
///
/// # Panics
/// If the lock is not acquired within [`PATIENCE`].
pub fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).blocking().acquire_within(PATIENCE).expect("the lock is free before long")
}

/// The endpoint of a server on this machine.
#[must_use]
pub fn local(port: u16) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

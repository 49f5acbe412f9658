//! Shared parts of the tests of engines with a server.

use std::time::Duration;

use leasehold_core::{Endpoint, Guard, Locks};

/// A limit for events that otherwise never happen. It is not a measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many cases of the suite run in parallel. Most of them wait; more would take the machine from other programs.
pub const AT_ONCE: usize = 16;

/// Acquires a mutex with the blocking interface, as a program without an executor does.
///
/// # Panics
/// If that fails.
pub fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).blocking().acquire_within(PATIENCE).expect("the lock is free before long")
}

/// A server on this machine.
#[must_use]
pub fn local(port: u16) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

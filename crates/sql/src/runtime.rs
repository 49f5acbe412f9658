//! The shim over the async runtime: the functions of core (spawn, sleep, time limits), and threads and clocks for this
//! crate. All other code of this crate gets the time as an argument.
#![cfg_attr(
    any(feature = "postgres", feature = "mysql", feature = "sqlite"),
    expect(clippy::disallowed_methods, reason = "the runtime shim of this crate")
)]

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use std::time::{SystemTime, UNIX_EPOCH};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
use std::{io, thread, time::Duration};

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};

/// Runs `work` in a thread of its own.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Blocks the thread for a time; only for the database thread.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Microseconds since 1970 by the system's clock. The tokens of a database without a clock of its own start at this
/// number, so that they keep growing even after an older file is restored. The diagnostics compare it with the clock of
/// a server.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The time, for measuring how long something is idle.
#[cfg(feature = "postgres")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

//! The door of this crate to the runtime: what it spawns, waits for and bounds in time. All else takes the time as an argument.
#![cfg_attr(
    any(feature = "postgres", feature = "sqlite"),
    expect(clippy::disallowed_methods, reason = "the door")
)]

#[cfg(feature = "sqlite")]
use std::{
    io, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};

/// Runs `work` in a thread of its own.
#[cfg(feature = "sqlite")]
pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Waits, in a thread of its own.
#[cfg(feature = "sqlite")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Microseconds since 1970, where no database has a clock: what tokens begin with, so that they go on where a file is copied back.
#[cfg(feature = "sqlite")]
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// For how long something rests.
#[cfg(feature = "postgres")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

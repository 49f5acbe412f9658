//! The door of this crate to the runtime: what it spawns, waits for and bounds in time. All else takes the time as an argument.
#![expect(clippy::disallowed_methods, reason = "the door")]

use std::time::Duration;
#[cfg(feature = "sqlite")]
use std::{
    io, thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Runs `work` beside all else. However it ends, whoever waits for it is to notice by what it drops.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

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

/// What comes of `work` within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

/// For how long something rests.
#[cfg(feature = "postgres")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

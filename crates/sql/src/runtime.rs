//! The shim over the async runtime: spawning, sleeping, threads, time limits and clocks. All other code gets the time
//! as an argument.
#![expect(clippy::disallowed_methods, reason = "the door")]

use std::time::Duration;
#[cfg(feature = "sqlite")]
use std::{
    io, thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Runs `work` in the background. However it ends, a waiting caller notices it by what `work` drops.
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

/// Sleeps; only for a thread of its own.
#[cfg(feature = "sqlite")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Microseconds since 1970 by the system's clock, for databases without a clock of their own. Tokens begin with it,
/// so that they keep growing after an older file is restored.
#[cfg(feature = "sqlite")]
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The result of `work`, if it ends within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

/// The time, for measuring how long something is idle.
#[cfg(feature = "postgres")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

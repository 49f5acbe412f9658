//! The runtime shim of the engines: spawning, sleeping and time limits on the keeper's runtime. All other engine code
//! gets the time as an argument.
#![expect(clippy::disallowed_methods, reason = "the only access of engines to the runtime")]

use std::time::Duration;

/// Runs `work` concurrently, without a handle. However `work` ends, it drops its values, such as the sender of a
/// channel. A task that waits on this channel thereby notices the end.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

/// Sleeps for `time`.
pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The result of `work`, or `None` after `limit`.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

//! What the engines spawn, wait for and bound in time on the keeper's runtime. All else takes the time as an argument.
#![expect(clippy::disallowed_methods, reason = "the one place where engines reach the runtime")]

use std::time::Duration;

/// Runs `work` beside all else. However it ends, whoever waits for it is to notice by what it drops.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

/// Waits for so long.
pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What comes of `work` within `limit`.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

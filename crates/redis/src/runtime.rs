//! The runtime shim of this crate, for everything but the connections to the servers that store locks (for these see
//! `conn.rs`): background work, pauses and time limits.
#![expect(clippy::disallowed_methods, reason = "the runtime shim of this crate")]

use std::time::Duration;

use tokio::sync::oneshot;

/// Keeps background work running; dropping this value ends the work.
pub(crate) struct BackgroundTask(
    #[expect(dead_code, reason = "dropped with it: ends the work")] oneshot::Sender<()>,
);

/// Runs `work` in the background, until it ends or the returned value is dropped.
pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static) -> BackgroundTask {
    let (alive, dropped) = oneshot::channel();
    drop(tokio::spawn(async move {
        tokio::select! {
            () = work => {}
            _ = dropped => {}
        }
    }));
    BackgroundTask(alive)
}

/// Runs `work` in the background to its end, even if no caller waits for it.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

/// Waits for this duration.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The result of `work`, if it comes within `limit`; otherwise drops `work` and returns `None`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

//! The door of this crate to the runtime, for what is no connection to a server with locks: what it spawns, waits for and bounds in
//! time.
#![expect(clippy::disallowed_methods, reason = "the door")]

use std::time::Duration;

use tokio::sync::oneshot;

/// Work that runs beside all else, as long as this lives.
pub(crate) struct Running(
    #[expect(dead_code, reason = "dropped with it: ends the work")] oneshot::Sender<()>,
);

/// Runs `work` until what is returned is dropped.
pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static) -> Running {
    let (alive, gone) = oneshot::channel();
    drop(tokio::spawn(async move {
        tokio::select! {
            () = work => {}
            _ = gone => {}
        }
    }));
    Running(alive)
}

/// Runs `work` to its end, whoever waits for it.
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

/// Waits.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What comes of `work` within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

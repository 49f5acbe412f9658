//! The door of this crate to the runtime: what it spawns, waits for and bounds in time. All else takes the time as an argument.
#![expect(clippy::disallowed_methods, reason = "the door")]

use std::time::Duration;

/// Runs `work` beside all else. However it ends, whoever waits for it is to notice by what it drops.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(work));
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What comes of `work` within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

/// Where tasks run.
pub(crate) type Runtime = tokio::runtime::Handle;

/// Where this task runs.
pub(crate) fn runtime() -> Runtime {
    Runtime::current()
}

/// Runs `work` there, from wherever this is. If it runs no longer, neither does the work.
pub(crate) fn spawn_on(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    drop(runtime.spawn(work));
}

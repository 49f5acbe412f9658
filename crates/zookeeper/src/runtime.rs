//! How this crate reaches the runtime: what it spawns, waits for and bounds in time. All else takes the time as an argument.

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};

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

//! The access of this crate to the runtime: spawn, sleep and time limits. All other code gets the time as an argument.

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};

/// A runtime for tasks.
pub(crate) type Runtime = tokio::runtime::Handle;

/// The runtime of this task.
pub(crate) fn runtime() -> Runtime {
    Runtime::current()
}

/// Runs `work` on this runtime, from any thread. If the runtime has stopped, the work does not run.
pub(crate) fn spawn_on(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    drop(runtime.spawn(work));
}

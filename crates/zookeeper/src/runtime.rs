//! The access of this crate to the runtime: spawn, sleep and time limits. All other code gets the time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// This machine's time of day, since 1970. Only to tell for how long a certificate is valid: it decides nothing.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads it")]
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

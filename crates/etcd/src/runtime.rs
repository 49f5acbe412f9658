//! The runtime of this crate: tasks, waits and time limits. All other code gets the time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};

/// This machine's time of day, since 1970. Only to tell how long a memo is kept: it decides nothing.
#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads it")]
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

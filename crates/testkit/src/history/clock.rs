//! The clock of the history.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A duration in nanoseconds, as in histories. More than five centuries become `u64::MAX`.
#[must_use]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the same in every process on this kernel.
///
/// # Panics
/// If the kernel has no such clock. Every supported system has it.
#[must_use]
pub fn now_nanos() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every supported kernel has CLOCK_MONOTONIC");
    let seconds = u64::try_from(now.tv_sec()).expect("a monotonic clock starts at zero");
    let nanos = u64::try_from(now.tv_nsec()).expect("nanoseconds are below a second");
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

//! The clock of the records.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A duration as histories count; longer than five centuries is for ever.
#[must_use]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the same in every process of this kernel.
///
/// # Panics
/// When the kernel has no such clock, which no supported system lacks.
#[must_use]
pub fn now_nanos() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every supported kernel has CLOCK_MONOTONIC");
    let seconds = u64::try_from(now.tv_sec()).expect("a monotonic clock starts at zero");
    let nanos = u64::try_from(now.tv_nsec()).expect("nanoseconds are below a second");
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

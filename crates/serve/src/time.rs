//! The time of day, as milliseconds since 1970 and as text. Only what is shown and recorded depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time as RFC 3339 in UTC, with milliseconds.
pub(crate) fn rfc3339(ms: u64) -> String {
    leasehold_ops::utc(UNIX_EPOCH + Duration::from_millis(ms))
}

/// A duration, written in its two largest units, as the command writes it.
pub(crate) fn short(ms: u64) -> String {
    leasehold_ops::short_duration(Duration::from_millis(ms))
}

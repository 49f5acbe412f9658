//! The time of day, as milliseconds since 1970 and as text. Only what is shown and recorded depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day.
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The time of day in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    millis(now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time as RFC 3339 in UTC, with milliseconds.
pub(crate) fn rfc3339(ms: u64) -> String {
    leasehold_ops::utc(UNIX_EPOCH + Duration::from_millis(ms))
}

/// The time of day of a moment, in UTC, for what is at most some minutes old.
pub(crate) fn clock(ms: u64) -> String {
    format!("{} UTC", &rfc3339(ms)["YYYY-MM-DDT".len()..][.."HH:MM:SS".len()])
}

/// A duration, written in its two largest units, as the command writes it.
pub(crate) fn short(ms: u64) -> String {
    leasehold_ops::short_duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_the_time_of_day() {
        // 2026-11-26T22:57:12.999Z
        assert_eq!(clock(1_795_733_832_999), "22:57:12 UTC");
        assert_eq!(clock(0), "00:00:00 UTC");
    }
}

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
    let (secs, days) = (ms / 1000, ms / 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// The date that is this number of days after 1970-01-01, in the Gregorian calendar. Years are counted from March on,
/// so that the leap day is the last day of a year.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// A duration, written in its two largest units, as the command writes it.
pub(crate) fn short(ms: u64) -> String {
    let (secs, millis) = (ms / 1000, ms % 1000);
    match secs {
        0 => format!("{millis}ms"),
        1..10 => format!("{secs}.{}s", millis / 100),
        10..60 => format!("{secs}s"),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_gregorian_calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(rfc3339(secs * 1000 + 7), text);
        }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let shown = [5, 1500, 59_999, 61_000, 3_725_000, 90_000_000].map(short);
        assert_eq!(shown, ["5ms", "1.5s", "59s", "1m01s", "1h02m", "1d01h"]);
    }
}

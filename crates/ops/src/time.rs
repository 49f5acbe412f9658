//! Times as text for people and records. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_OF_A_DAY: u64 = 86_400;

/// A duration, written in its two largest units.
#[must_use]
pub fn short_duration(time: Duration) -> String {
    let (secs, millis) = (time.as_secs(), time.subsec_millis());
    match secs {
        0 => format!("{millis}ms"),
        1..10 => format!("{secs}.{}s", millis / 100),
        10..60 => format!("{secs}s"),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3600..86_400 => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3600 % 24),
    }
}

/// A time as RFC 3339 has it, in UTC and with milliseconds. A clock before 1970 shows the beginning of 1970.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since_epoch.as_secs() / SECONDS_OF_A_DAY, since_epoch.as_secs() % SECONDS_OF_A_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date that is this number of days after the first of January 1970.
///
/// The years are counted from March, so that the leap day is the last day of a year. In the Gregorian calendar 400
/// years have 146,097 days.
const fn date(days: u64) -> (u64, u64, u64) {
    // From the first of March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_does() {
        // As `date -u -d @SECONDS` prints them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(7)), text);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn ages_have_two_units_at_most() {
        let shown = [5, 1500, 59_999, 61_000, 3_725_000, 90_000_000]
            .map(|ms| short_duration(Duration::from_millis(ms)));
        assert_eq!(shown, ["5ms", "1.5s", "59s", "1m01s", "1h02m", "1d01h"]);
    }
}

//! Timetables by cron expressions, read by the crate `croner`.

use std::fmt;

use croner::parser::CronParser;
use jiff::{
    Timestamp, Zoned,
    tz::{TimeZone, TimeZoneDatabase},
};

use crate::{Due, Error, Timetable};

/// A timetable by a cron expression, for [`Locks::schedule`](crate::Locks::schedule). With the feature `cron`.
///
/// The expression has five fields (minute, hour, day of the month, month, day of the week), a field of seconds before
/// them if wanted, or is a nickname such as `@daily`. The fields mean what they mean in Vixie cron, with the additions
/// of the crate [croner](https://docs.rs/croner), such as `L` for the last day of a month.
///
/// The time zone is UTC unless [`in_zone`](Self::in_zone) names another. Where clocks change between summer and winter,
/// this follows Vixie cron:
///
/// - a **fixed time** that a change skips is due at the end of the gap, and one that occurs twice is due the first time
///   only: a job at 02:30 runs one time each day;
/// - a time **in each hour** (`*` in the field of the hour or the minute) follows the real time: `*/10 * * * *` is due
///   each ten minutes, also in the hour that is repeated, and not in the hour that is skipped.
///
/// The rules of the time zones are compiled into the program, so all processes of one build have the same ones,
/// whatever their machines have.
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// use leasehold::{Cron, Due, Timetable};
/// let nightly = Cron::new("30 2 * * *")?.in_zone("Europe/Berlin")?;
/// // Noon on 2026-01-01 in UTC; the next tick is at half past one in UTC.
/// let tick = nightly.next_after(Due::from_unix_secs(1_767_268_800));
/// assert_eq!(tick, Some(Due::from_unix_secs(1_767_317_400)));
///
/// let locks = leasehold::Locks::connect("memory:")?;
/// let report = locks.schedule("report", nightly);
/// # let _ = report;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cron {
    expression: String,
    pattern: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// The timetable of this cron expression, in UTC.
    ///
    /// ```
    /// assert!(leasehold::Cron::new("*/15 * * * MON-FRI").is_ok());
    /// assert!(leasehold::Cron::new("61 * * * *").unwrap_err().is_invalid());
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if it is no cron expression, or one that never occurs, such as the 30th of
    /// February.
    pub fn new(expression: &str) -> Result<Self, Error> {
        let invalid = |problem: &dyn fmt::Display| {
            Error::invalid(format!("the cron expression {expression:?} is not valid: {problem}"))
        };
        let pattern = CronParser::new().parse(expression).map_err(|error| invalid(&error))?;
        let cron = Self { expression: expression.to_owned(), pattern, zone: TimeZone::UTC };
        match cron.next_after(Due::from_unix_secs(0)) {
            Some(_) => Ok(cron),
            None => Err(invalid(&"there is no such date")),
        }
    }

    /// The same expression in this time zone, for instance `Europe/Berlin`.
    ///
    /// ```
    /// use leasehold::Cron;
    /// assert!(Cron::new("@daily")?.in_zone("America/New_York").is_ok());
    /// assert!(Cron::new("@daily")?.in_zone("Atlantis").unwrap_err().is_invalid());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a name that the database of time zones (IANA) does not have.
    pub fn in_zone(mut self, name: &str) -> Result<Self, Error> {
        self.zone = TimeZoneDatabase::bundled().get(name).map_err(|_| {
            Error::invalid(format!(
                "{name:?} is no time zone: give a name of the IANA database, for example \"Europe/Berlin\""
            ))
        })?;
        Ok(self)
    }

    /// The time in the time zone, in whole seconds.
    fn zoned(&self, due: Due) -> Option<Zoned> {
        let secs = i64::try_from(due.as_unix_secs()).ok()?;
        Some(Timestamp::from_second(secs).ok()?.to_zoned(self.zone.clone()))
    }
}

impl Timetable for Cron {
    fn next_after(&self, after: Due) -> Option<Due> {
        due_of(&self.pattern.find_next_occurrence(&self.zoned(after)?, false).ok()?)
    }

    fn last_until(&self, at: Due) -> Option<Due> {
        due_of(&self.pattern.find_previous_occurrence(&self.zoned(at)?, true).ok()?)
    }
}

fn due_of(time: &Zoned) -> Option<Due> {
    u64::try_from(time.timestamp().as_second()).ok().map(Due::from_unix_secs)
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?} in {})", self.expression, self.zone.iana_name().unwrap_or("UTC"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(expression: &str) -> Cron {
        Cron::new(expression).unwrap().in_zone("Europe/Berlin").unwrap()
    }

    /// A time in Berlin, by its text with offset.
    fn at(text: &str) -> Due {
        let time: Timestamp = text.parse().unwrap();
        Due::from_unix_secs(u64::try_from(time.as_second()).unwrap())
    }

    /// The ticks of the day that begins at this time, as UTC.
    fn day_of(expression: &str, begin: &str, hours: u64) -> Vec<String> {
        let cron = cron(expression);
        let (begin, end) = (at(begin), Due::from_unix_secs(at(begin).as_unix_secs() + hours * 3600));
        let before = Due::from_unix_secs(begin.as_unix_secs() - 1);
        let ticks = std::iter::successors(cron.next_after(before), |due| cron.next_after(*due));
        ticks
            .take_while(|due| *due < end)
            .map(|due| Timestamp::from_second(due.as_unix_secs() as i64).unwrap().to_string())
            .collect()
    }

    const SPRING: &str = "2026-03-29T00:00:00+01:00";
    const AUTUMN: &str = "2026-10-25T00:00:00+02:00";

    #[test]
    fn in_spring_a_fixed_time_in_the_gap_is_due_at_its_end() {
        // 02:00 to 03:00 does not exist; 03:00 is 01:00 UTC.
        assert_eq!(day_of("30 2 * * *", SPRING, 23), ["2026-03-29T01:00:00Z"]);
        assert_eq!(day_of("0 1 * * *", SPRING, 23), ["2026-03-29T00:00:00Z"]);
        let hourly = day_of("0 * * * *", SPRING, 4);
        let utc =
            ["2026-03-28T23:00:00Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"];
        assert_eq!(hourly, utc, "each hour of real time");
    }

    #[test]
    fn in_autumn_a_fixed_time_is_due_one_time_and_each_hour_follows_real_time() {
        assert_eq!(day_of("30 2 * * *", AUTUMN, 25), ["2026-10-25T00:30:00Z"]);
        let half_hours = day_of("*/30 * * * *", AUTUMN, 5);
        assert_eq!(half_hours.len(), 10, "{half_hours:?}");
    }

    /// What the choice of ticks relies on: both directions agree, and no tick is passed over.
    #[test]
    fn both_directions_agree_on_both_days() {
        for expression in ["30 2 * * *", "0 3 * * *", "*/30 * * * *", "15 * * * *", "0 2-3 * * *", "@daily"] {
            let cron = cron(expression);
            for begin in [SPRING, AUTUMN] {
                let begin = at(begin).as_unix_secs() - 7200;
                for minute in (0..30 * 60).step_by(10) {
                    let now = Due::from_unix_secs(begin + minute * 60);
                    let next = cron.next_after(now).unwrap();
                    let last = cron.last_until(now).unwrap();
                    let text = format!("{expression} at {now}: last {last}, next {next}");
                    assert!(last <= now && now < next, "{text}");
                    assert_eq!(cron.last_until(next), Some(next), "{text}");
                    assert_eq!(cron.next_after(last), Some(next), "{text}");
                }
            }
        }
    }

    #[test]
    fn whole_seconds_count() {
        let cron = Cron::new("* * * * * *").unwrap();
        let now = Due::from_unix_millis(1_767_225_600_500);
        assert_eq!(cron.last_until(now), Some(Due::from_unix_secs(1_767_225_600)));
        assert_eq!(cron.next_after(now), Some(Due::from_unix_secs(1_767_225_601)));
    }

    #[test]
    fn what_is_no_expression_or_no_date_is_refused() {
        for (expression, reason) in
            [("", "not valid"), ("x", "not valid"), ("* * *", "not valid"), ("0 0 30 2 *", "no such date")]
        {
            let error = Cron::new(expression).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
        }
    }
}

//! When the ticks of a schedule are due.

use std::{fmt, time::Duration};

use crate::{Due, contract::time::format_duration};

/// The shortest period. A tick costs several requests, so a shorter period is work in a loop and no schedule.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// The longest period: the record of a tick is kept for at most this time.
const LONGEST_PERIOD: Duration = crate::MAX_MEMO_KEEP;

/// The times at which the ticks of a schedule are due: [`Every`] or, with the feature `cron`, `Cron`. A program can
/// implement its own.
///
/// All processes of a schedule must compute the same times. So a timetable depends on nothing but its arguments: not on
/// the start of the process, and not on the time zone of the machine. Both methods are called often, so they must be
/// fast.
pub trait Timetable: Send + Sync + 'static {
    /// The first tick that is later than `after`; `None` if there is none.
    fn next_after(&self, after: Due) -> Option<Due>;

    /// The last tick that is not later than `at`; `None` if there is none.
    fn last_until(&self, at: Due) -> Option<Due>;

    /// What is wrong with this timetable, for the error of the schedule that uses it.
    fn problem(&self) -> Option<String> {
        None
    }
}

/// A tick each time that a period has passed. The ticks are multiples of the period since the begin of 1970 in UTC, so
/// that they are the same in all processes: `Every::new` of an hour is due at each full hour of UTC.
///
/// ```
/// use leasehold::{Due, Every, Timetable};
/// use std::time::Duration;
/// let quarter = Every::new(Duration::from_secs(900));
/// assert_eq!(quarter.next_after(Due::from_unix_secs(901)), Some(Due::from_unix_secs(1800)));
/// // Each day at 03:30 UTC.
/// let nightly = Every::new(Duration::from_secs(86_400)).offset(Duration::from_secs(12_600));
/// assert_eq!(nightly.next_after(Due::from_unix_secs(0)), Some(Due::from_unix_secs(12_600)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    period: Duration,
    offset: Duration,
}

impl Every {
    /// A tick each `period`: 1 s to 400 days, in whole milliseconds.
    #[must_use]
    pub const fn new(period: Duration) -> Self {
        Self { period, offset: Duration::ZERO }
    }

    /// Moves all ticks by `offset`, which is less than the period.
    #[must_use]
    pub const fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// The period and the offset in milliseconds.
    fn millis(self) -> (u64, u64) {
        (self.period.as_millis().max(1) as u64, self.offset.as_millis() as u64)
    }
}

impl Timetable for Every {
    fn next_after(&self, after: Due) -> Option<Due> {
        let (period, offset) = self.millis();
        let after = after.as_unix_millis();
        let passed = after.checked_sub(offset).map_or(0, |since| since / period + 1);
        passed.checked_mul(period)?.checked_add(offset).map(Due::from_unix_millis)
    }

    fn last_until(&self, at: Due) -> Option<Due> {
        let (period, offset) = self.millis();
        let since = at.as_unix_millis().checked_sub(offset)?;
        Some(Due::from_unix_millis(since / period * period + offset))
    }

    fn problem(&self) -> Option<String> {
        let whole = |duration: Duration| duration.subsec_nanos().is_multiple_of(1_000_000);
        if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&self.period) || !whole(self.period) {
            let [period, shortest, longest] =
                [self.period, SHORTEST_PERIOD, LONGEST_PERIOD].map(format_duration);
            return Some(format!(
                "the period {period} is out of range: {shortest} to {longest} in whole milliseconds are allowed"
            ));
        }
        if self.offset >= self.period || !whole(self.offset) {
            let [offset, period] = [self.offset, self.period].map(format_duration);
            return Some(format!(
                "the offset {offset} is out of range: whole milliseconds, less than the period of {period}"
            ));
        }
        None
    }
}

impl fmt::Debug for dyn Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timetable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Due {
        Due::from_unix_millis(millis)
    }

    #[test]
    fn periods_are_aligned_to_the_epoch() {
        let every = Every::new(Duration::from_secs(10)).offset(Duration::from_secs(3));
        assert_eq!(every.problem(), None);
        for (at, last, next) in [
            (0, None, 3_000),
            (2_999, None, 3_000),
            (3_000, Some(3_000), 13_000),
            (12_999, Some(3_000), 13_000),
            (1_767_225_603_001, Some(1_767_225_603_000), 1_767_225_613_000),
        ] {
            assert_eq!(every.last_until(ms(at)), last.map(ms), "{at}");
            assert_eq!(every.next_after(ms(at)), Some(ms(next)), "{at}");
        }
        assert_eq!(every.next_after(ms(u64::MAX)), None);
    }

    #[test]
    fn periods_and_offsets_outside_their_range_are_refused() {
        let secs = Duration::from_secs;
        for (every, reason) in [
            (Every::new(Duration::ZERO), "the period 0s is out of range"),
            (Every::new(Duration::from_millis(999)), "the period 999ms"),
            (Every::new(LONGEST_PERIOD + secs(1)), "out of range"),
            (Every::new(Duration::from_micros(1_500_500)), "whole milliseconds"),
            (Every::new(secs(10)).offset(secs(10)), "the offset 10s is out of range"),
        ] {
            let problem = every.problem().unwrap();
            assert!(problem.contains(reason), "{problem}");
            // Without a division by zero.
            let _ = (every.next_after(ms(5)), every.last_until(ms(5)));
        }
    }
}

//! The nominal time of a tick.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The nominal time of a tick: a time of day in UTC, in whole milliseconds since 1970. It identifies the tick: all
/// processes compute the same value, whatever their clocks show at that moment.
///
/// ```
/// use leasehold::Due;
/// let due = Due::from_unix_secs(1_767_225_600);
/// assert_eq!(due.as_unix_millis(), 1_767_225_600_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due(u64);

impl Due {
    /// The time so many seconds after the begin of 1970.
    #[must_use]
    pub const fn from_unix_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// The time so many milliseconds after the begin of 1970.
    #[must_use]
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Whole seconds since the begin of 1970.
    #[must_use]
    pub const fn as_unix_secs(self) -> u64 {
        self.0 / 1000
    }

    /// Milliseconds since the begin of 1970.
    #[must_use]
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }

    /// The time of day that a clock shows.
    pub(crate) fn of_time_of_day(since_epoch: Duration) -> Self {
        Self(millis(since_epoch))
    }

    /// `self + duration`, at most the latest time.
    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// `self - duration`, at least the begin of 1970.
    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Whole milliseconds of a duration.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Rounded down to milliseconds; a time before 1970 counts as the begin of 1970.
impl From<SystemTime> for Due {
    fn from(time: SystemTime) -> Self {
        Self::of_time_of_day(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// As seconds since 1970, for example `1767225600` or `1767225600.5`.
impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, millis) = (self.0 / 1000, self.0 % 1000);
        if millis == 0 { write!(f, "{secs}") } else { write!(f, "{secs}.{millis:03}") }
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Due({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_is_displayed_in_seconds() {
        for (millis, expected) in [(0, "0"), (1_500, "1.500"), (1_767_225_600_000, "1767225600")] {
            assert_eq!(Due::from_unix_millis(millis).to_string(), expected);
        }
    }

    #[test]
    fn times_outside_the_range_are_its_ends() {
        assert_eq!(Due::from(UNIX_EPOCH - Duration::from_secs(1)), Due::from_unix_secs(0));
        assert_eq!(Due::from_unix_secs(u64::MAX).plus(Duration::MAX).as_unix_millis(), u64::MAX);
        assert_eq!(Due::from_unix_secs(1).minus(Duration::from_secs(2)), Due::from_unix_secs(0));
    }
}

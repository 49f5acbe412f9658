//! Points in time on the clock of this machine.

use std::{fmt, time::Duration};

/// A point in time in nanoseconds since the machine booted, including suspended time.
///
/// A type of our own, not `std::time::Instant`: it counts while the machine sleeps (`CLOCK_BOOTTIME`), it fits into an
/// atomic, and tests and the simulation can create one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than every real instant: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `self + duration`, or [`NEVER`](Self::NEVER) when that is out of range.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).map_or(u64::MAX, |nanos| self.0.saturating_add(nanos)))
    }

    /// `self - duration`, or the boot when that is out of range.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).map_or(0, |nanos| self.0.saturating_sub(nanos)))
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(nanos) => write!(f, "boot+{:?}", Duration::from_nanos(nanos)),
        }
    }
}

/// A source of time. Must never go backwards and should count suspended time.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// The time of day, as the time since 1970 in UTC. Unlike [`now`](Self::now), it can be wrong and can be set. So
    /// only schedules use it, and it never decides about a hold. A clock of tests that has no time of day begins in
    /// 1970.
    fn time_of_day(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }
}

/// Formats a duration for people: in the largest unit, at most hours, of which it is a whole number.
pub(crate) fn format_duration(duration: Duration) -> String {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match (secs, nanos) {
        (1.., 0) if secs.is_multiple_of(3600) => format!("{}h", secs / 3600),
        (1.., 0) if secs.is_multiple_of(60) => format!("{}m", secs / 60),
        (_, 0) => format!("{secs}s"),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", duration.as_millis()),
        _ => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_displayed_as_they_are_written() {
        for (millis, expected) in [
            (0, "0s"),
            (100, "100ms"),
            (1500, "1500ms"),
            (30_000, "30s"),
            (90_000, "90s"),
            (300_000, "5m"),
            (86_400_000, "24h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        }
        assert_eq!(format_duration(Duration::from_micros(1500)), "1.5ms");
    }
}

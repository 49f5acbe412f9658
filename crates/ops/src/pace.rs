//! How often a tool looks at the locks of an engine.

use std::time::Duration;

/// The pause after a look is at least this many times as long as the look took.
const FACTOR: u32 = 3;
/// The longest pause that follows from the time of a look.
const LONGEST: Duration = Duration::from_secs(15);
/// The shortest pause before a look that a notice of a change causes.
const SHORTEST_AFTER_NOTICE: Duration = Duration::from_millis(100);
/// A look that a notice causes comes after at least this many times as long as the look before it took.
const NOTICE_FACTOR: u32 = 9;

/// The pause between a look that took this long and the next one: `wanted`, but three times as long as the look if that
/// is more, so that looks at very many names are not the main load of a server. The time of a look lengthens the pause
/// to at most 15 s.
///
/// ```
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// assert_eq!(leasehold_ops::pause_after_look(ms(1000), ms(20)), ms(1000));
/// assert_eq!(leasehold_ops::pause_after_look(ms(1000), ms(2000)), ms(6000));
/// ```
#[must_use]
pub fn pause_after_look(wanted: Duration, took: Duration) -> Duration {
    wanted.max(took.saturating_mul(FACTOR).min(LONGEST))
}

/// The shortest pause between a look that took this long and a look because of a notice of a change: at least 100 ms,
/// and so long that such looks take at most a tenth of the time, however often locks change.
///
/// ```
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// assert_eq!(leasehold_ops::pause_before_noticed_look(ms(2)), ms(100));
/// assert_eq!(leasehold_ops::pause_before_noticed_look(ms(97)), ms(873));
/// ```
#[must_use]
pub fn pause_before_noticed_look(took: Duration) -> Duration {
    SHORTEST_AFTER_NOTICE.max(took.saturating_mul(NOTICE_FACTOR).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_look_is_followed_by_a_long_pause_within_bounds() {
        let secs = Duration::from_secs;
        let pauses = [(1, 0), (1, 2), (1, 9), (60, 9), (60, 3600)]
            .map(|(wanted, took)| pause_after_look(secs(wanted), secs(took)));
        assert_eq!(pauses, [1, 6, 15, 60, 60].map(secs));
        assert_eq!(pause_after_look(secs(1), Duration::MAX), LONGEST);
    }

    #[test]
    fn changes_cause_looks_in_a_tenth_of_the_time_at_most() {
        let ms = Duration::from_millis;
        let pauses = [0, 11, 12, 1000, 9000].map(|took| pause_before_noticed_look(ms(took)));
        assert_eq!(pauses, [100, 100, 108, 9000, 15_000].map(ms));
        assert_eq!(pause_before_noticed_look(Duration::MAX), LONGEST);
    }
}

//! How often a tool looks at the locks of an engine.

use std::time::Duration;

/// The pause after a look is at least this many times as long as the look took.
const FACTOR: u32 = 3;
/// The longest pause that follows from the time of a look.
const LONGEST: Duration = Duration::from_secs(15);

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
}

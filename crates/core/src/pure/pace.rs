//! How often a waiting request asks the engine, as its user wants it. Pure: times in, a pause out.

use std::time::Duration;

use crate::contract::time::format_duration;

/// The shortest pause that a user can ask for.
const SHORTEST: Duration = Duration::from_millis(1);

/// The pauses of a waiting request between its questions to the engine. A notification of the engine ends a pause at
/// once, so a pace only says how late the request asks if no notification comes.
///
/// A claim in the queue of an engine asks at least as often as the engine needs it, however long the pauses are:
/// otherwise the claim would lose its position. After errors, and while a server accepts no more connections, the
/// pauses grow as they do without a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    first: Duration,
    longest: Duration,
    jitter: bool,
}

impl Pace {
    /// Equal pauses.
    ///
    /// ```
    /// use leasehold::Pace;
    /// use std::time::Duration;
    /// let pace = Pace::fixed(Duration::from_millis(200));
    /// assert_eq!(pace.first(), Duration::from_millis(200));
    /// ```
    #[must_use]
    pub const fn fixed(pause: Duration) -> Self {
        Self::doubled(pause, pause)
    }

    /// Each pause is twice as long as the one before, from `first` up to `longest`.
    ///
    /// ```
    /// use leasehold::Pace;
    /// use std::time::Duration;
    /// // 10 ms, 20 ms, 40 ms ... 1 s.
    /// let pace = Pace::doubled(Duration::from_millis(10), Duration::from_secs(1));
    /// assert_eq!(pace.first(), Duration::from_millis(10));
    /// ```
    #[must_use]
    pub const fn doubled(first: Duration, longest: Duration) -> Self {
        Self { first, longest, jitter: true }
    }

    /// Pauses of the full length. By default each pause has a random length from half of its value to its value, so
    /// that many clients do not ask at the same moments.
    ///
    /// ```
    /// use leasehold::Pace;
    /// let pace = Pace::fixed(std::time::Duration::from_millis(200)).without_jitter();
    /// ```
    #[must_use]
    pub const fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// The first pause.
    ///
    /// ```
    /// use std::time::Duration;
    /// assert_eq!(leasehold::Pace::fixed(Duration::from_secs(1)).first(), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub const fn first(self) -> Duration {
        self.first
    }

    /// The pause after `pauses` earlier pauses; `jitter` is any random number.
    pub(crate) fn pause(self, pauses: u32, jitter: u32) -> Duration {
        let pause = self.first.saturating_mul(1 << pauses.min(30)).min(self.longest);
        if self.jitter { jittered(pause, jitter) } else { pause }
    }

    /// What is wrong with this pace for a wait of at most `limit`; `None` if nothing is.
    pub(crate) fn problem(self, limit: Option<Duration>) -> Option<String> {
        let [first, longest] = [self.first, self.longest].map(format_duration);
        if self.first < SHORTEST {
            return Some(format!(
                "a pause of {first} is too short: at least {} is needed",
                format_duration(SHORTEST)
            ));
        }
        if self.longest < self.first {
            return Some(format!("the longest pause, {longest}, is shorter than the first, {first}"));
        }
        let limit = limit.filter(|limit| *limit < self.first)?;
        Some(format!("a pause of {first} is longer than the wait of at most {}", format_duration(limit)))
    }
}

/// A pause between half of `interval` and all of it.
pub(crate) fn jittered(interval: Duration, jitter: u32) -> Duration {
    interval / 2 + (interval / 2).mul_f64(f64::from(jitter) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pace = Pace::doubled(100 * MILLIS, 450 * MILLIS).without_jitter();
        let pauses: Vec<_> = (0..4).map(|earlier| pace.pause(earlier, 0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 450]);
        assert_eq!(pace.pause(u32::MAX, 0), 450 * MILLIS);
        assert_eq!(Pace::fixed(70 * MILLIS).without_jitter().pause(9, 0), 70 * MILLIS);
    }

    #[test]
    fn jitter_shortens_a_pause_to_half_at_most() {
        let pace = Pace::fixed(100 * MILLIS);
        assert_eq!((pace.pause(0, 0), pace.pause(0, u32::MAX)), (50 * MILLIS, 100 * MILLIS));
    }

    #[test]
    fn an_impossible_pace_is_named() {
        let secs = Duration::from_secs;
        for (pace, limit, problem) in [
            (Pace::fixed(Duration::ZERO), None, Some("too short")),
            (Pace::doubled(secs(2), secs(1)), None, Some("shorter than the first")),
            (Pace::fixed(secs(2)), Some(secs(1)), Some("longer than the wait")),
            (Pace::fixed(secs(1)), Some(secs(1)), None),
            (Pace::doubled(secs(1), secs(60)), Some(secs(5)), None),
            (Pace::fixed(secs(1)), None, None),
        ] {
            let found = pace.problem(limit);
            assert_eq!(found.is_some(), problem.is_some(), "{pace:?} {limit:?}: {found:?}");
            assert!(found.unwrap_or_default().contains(problem.unwrap_or_default()), "{pace:?}");
        }
    }
}

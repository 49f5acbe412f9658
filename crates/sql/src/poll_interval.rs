//! How soon to look again, where nobody tells: pure.

use std::time::Duration;

use leasehold_core::Instant;

/// A grant is found at the latest after this share of the time for which nothing moved: who waited for long hardly notices.
const SHARE: u32 = 8;
const FASTEST: Duration = Duration::from_millis(4);
const SLOWEST: Duration = Duration::from_millis(250);
/// Who has others before it looks more seldom by this much for each: after a time of rest they find their grants one after the other,
/// each after half of [`SLOWEST`] on average, and what moves is seen meanwhile.
const EACH: Duration = Duration::from_millis(60);
/// The first in line look as often as if they were the very first.
const FIRST: u32 = 2;
/// Half of the time for which a grant lasts that nobody has heard of.
const SELDOM: Duration = Duration::from_secs(1);

/// Looks often after something moved, and ever more seldom while nothing does.
#[derive(Debug)]
pub(crate) struct PollInterval {
    moved: Instant,
    now: Instant,
}

impl PollInterval {
    pub(crate) fn new(now: Instant) -> Self {
        Self { moved: now, now }
    }

    /// A claim took a place in line, or was granted.
    pub(crate) fn moved(&mut self, now: Instant) {
        self.moved = now;
    }

    pub(crate) fn passed(&mut self, now: Instant) {
        self.now = now;
    }

    /// The pause until the next look of who has so many before it.
    pub(crate) fn next(&self, ahead: u32) -> Duration {
        let slowest = EACH.saturating_mul(ahead.saturating_sub(FIRST)).saturating_add(SLOWEST).min(SELDOM);
        (self.now.since(self.moved) / SHARE).clamp(FASTEST, slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_nothing_moves_the_more_seldom_it_looks() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut poll_interval = PollInterval::new(at(1000));
        let mut next = |millis: u64| {
            poll_interval.passed(at(millis));
            poll_interval.next(FIRST)
        };
        assert_eq!(next(1000), FASTEST);
        assert_eq!(next(1400), Duration::from_millis(50));
        assert_eq!(next(9000), SLOWEST);
        poll_interval.moved(at(9000));
        poll_interval.passed(at(9016));
        assert_eq!(poll_interval.next(FIRST), FASTEST);
    }

    #[test]
    fn the_farther_from_its_turn_the_more_seldom_it_looks() {
        let mut poll_interval = PollInterval::new(Instant::from_nanos(0));
        poll_interval.passed(Instant::from_nanos(60_000_000_000));
        assert_eq!([0, 2].map(|ahead| poll_interval.next(ahead)), [SLOWEST; 2]);
        assert_eq!(poll_interval.next(9), SLOWEST + EACH * 7);
        assert_eq!([40, u32::MAX].map(|ahead| poll_interval.next(ahead)), [SELDOM; 2]);
    }
}

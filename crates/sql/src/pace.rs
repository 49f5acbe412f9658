//! How soon to look again, where nobody tells: pure.

use std::time::Duration;

use leasehold_core::Instant;

/// A grant is found at the latest after this share of the time for which nothing moved: who waited for long hardly notices.
const SHARE: u32 = 8;
const FASTEST: Duration = Duration::from_millis(4);
const SLOWEST: Duration = Duration::from_millis(250);

/// Looks often after something moved, and ever more seldom while nothing does.
#[derive(Debug)]
pub(crate) struct Pace {
    moved: Instant,
    now: Instant,
}

impl Pace {
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

    pub(crate) fn next(&self) -> Duration {
        (self.now.since(self.moved) / SHARE).clamp(FASTEST, SLOWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_nothing_moves_the_more_seldom_it_looks() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut pace = Pace::new(at(1000));
        let mut next = |millis: u64| {
            pace.passed(at(millis));
            pace.next()
        };
        assert_eq!(next(1000), FASTEST);
        assert_eq!(next(1400), Duration::from_millis(50));
        assert_eq!(next(9000), SLOWEST);
        pace.moved(at(9000));
        pace.passed(at(9016));
        assert_eq!(pace.next(), FASTEST);
    }
}

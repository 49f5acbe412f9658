//! How soon to poll again where the database does not notify clients. Pure.

use std::time::Duration;

use leasehold_core::Instant;

/// The poll interval is this share (1/8) of the time since a claim of this client last entered the queue or was
/// granted. A claim that has waited for long hardly notices such a delay.
const SHARE: u32 = 8;
/// The shortest interval, right after a change.
const MIN_INTERVAL: Duration = Duration::from_millis(4);
/// The longest interval of the claims at the head of the queue.
const MAX_INTERVAL_AT_HEAD: Duration = Duration::from_millis(250);
/// By how much each claim ahead, beyond [`FAST_POLLERS`], lengthens the longest interval of a claim. After a quiet time
/// each of the claims ahead notices its own grant half of [`MAX_INTERVAL_AT_HEAD`] late on average. So a claim further
/// back is granted later, and can poll less often.
const STEP_PER_CLAIM: Duration = Duration::from_millis(60);
/// This many claims behind the head of the queue poll as often as the head.
const FAST_POLLERS: u32 = 2;
/// The longest interval of any claim: half of the time that a grant lasts without a confirmation.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Polls often after a change, and ever less often without one.
#[derive(Debug)]
pub(crate) struct PollInterval {
    last_change: Instant,
    now: Instant,
}

impl PollInterval {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last_change: now, now }
    }

    /// Records that a claim of this client entered the queue or was granted.
    pub(crate) fn note_change(&mut self, now: Instant) {
        self.last_change = now;
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// The pause until the next poll of a client with `ahead` claims ahead.
    pub(crate) fn next_interval(&self, ahead: u32) -> Duration {
        let slowest = STEP_PER_CLAIM
            .saturating_mul(ahead.saturating_sub(FAST_POLLERS))
            .saturating_add(MAX_INTERVAL_AT_HEAD)
            .min(MAX_INTERVAL);
        (self.now.since(self.last_change) / SHARE).clamp(MIN_INTERVAL, slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_grows_with_the_time_without_changes() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut poll_interval = PollInterval::new(at(1000));
        let mut next = |millis: u64| {
            poll_interval.set_now(at(millis));
            poll_interval.next_interval(FAST_POLLERS)
        };
        assert_eq!(next(1000), MIN_INTERVAL);
        assert_eq!(next(1400), Duration::from_millis(50));
        assert_eq!(next(9000), MAX_INTERVAL_AT_HEAD);
        poll_interval.note_change(at(9000));
        poll_interval.set_now(at(9016));
        assert_eq!(poll_interval.next_interval(FAST_POLLERS), MIN_INTERVAL);
    }

    #[test]
    fn the_interval_grows_with_the_claims_ahead() {
        let mut poll_interval = PollInterval::new(Instant::from_nanos(0));
        poll_interval.set_now(Instant::from_nanos(60_000_000_000));
        assert_eq!([0, 2].map(|ahead| poll_interval.next_interval(ahead)), [MAX_INTERVAL_AT_HEAD; 2]);
        assert_eq!(poll_interval.next_interval(9), MAX_INTERVAL_AT_HEAD + STEP_PER_CLAIM * 7);
        assert_eq!([40, u32::MAX].map(|ahead| poll_interval.next_interval(ahead)), [MAX_INTERVAL; 2]);
    }
}

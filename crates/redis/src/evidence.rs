//! Judges which answers prove the current state of the locks (are evidence). A server whose process was paused, or that
//! was cut off from the network, does not know that another server has replaced it. When it runs again, it answers the
//! requests that it had received before the pause, and those that waited in its socket, as if it still had the locks.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Instant};

/// Answers to requests sent within this time after a slow answer are no evidence either: a paused server that runs
/// again needs a moment to learn that another server has replaced it.
const DOUBT_AFTER_SLOW_ANSWER: Duration = Duration::from_millis(200);

/// Decides which answers of one connection are evidence.
pub(crate) struct Evidence {
    /// An answer that took longer than this is no evidence, in nanoseconds.
    evidence_limit: AtomicU64,
    /// Answers to requests sent before this moment are no evidence, in nanoseconds of our clock.
    doubted_until: AtomicU64,
}

impl Evidence {
    /// `evidence_limit`: an answer that took longer is no evidence; `None`: each answer is evidence.
    pub(crate) fn new(evidence_limit: Option<Duration>) -> Self {
        Self {
            evidence_limit: AtomicU64::new(evidence_limit.map_or(u64::MAX, nanos)),
            doubted_until: AtomicU64::new(0),
        }
    }

    /// From now on, an answer that takes longer than `evidence_limit` is no evidence.
    pub(crate) fn set_evidence_limit(&self, evidence_limit: Duration) {
        self.evidence_limit.store(nanos(evidence_limit), Ordering::Relaxed);
    }

    /// Judges an answer that came at `now` to a request sent at `sent`: an error if the answer is no evidence.
    pub(crate) fn judge(&self, sent: Instant, now: Instant) -> Result<(), EngineError> {
        if nanos(now.since(sent)) > self.evidence_limit.load(Ordering::Relaxed) {
            self.doubted_until.fetch_max(now.after(DOUBT_AFTER_SLOW_ANSWER).as_nanos(), Ordering::Relaxed);
        }
        if sent.as_nanos() >= self.doubted_until.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = "the server answered so late that another server may have replaced it by then";
        Err(EngineError::new(Fault::Unknown, message))
    }
}

/// A duration in nanoseconds.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_slow_answer_and_the_next_requests_prove_nothing() {
        let evidence = Evidence::new(Some(Duration::from_secs(1)));
        for (sent, answered, is_evidence) in [
            (1000, 2000, true),
            (1500, 2600, false),
            (2599, 2600, false),
            (2650, 2651, false),
            (2799, 2801, false),
            (2800, 2801, true),
        ] {
            assert_eq!(evidence.judge(at(sent), at(answered)).is_ok(), is_evidence, "{sent} to {answered}");
        }
        assert!(Evidence::new(None).judge(at(0), at(9000)).is_ok(), "no other server can replace it");
    }
}

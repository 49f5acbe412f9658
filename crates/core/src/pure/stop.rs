//! When to notify work to stop, and when to kill it, so that it does not outlive its hold: a pure function.
//!
//! A lease is renewed when a third of it has passed. Work is notified to stop at the earliest when two thirds of the
//! lease, less a twentieth, have passed. So an engine whose answers take less than a tenth of the lease never causes
//! work to be stopped, even when one renewal is lost.

use std::time::Duration;

use crate::Loss;

/// The grace is at most this part of what the engine granted.
const GRACE_FRACTION: u32 = 3;
/// How long before the deadline work is killed: a process takes a moment to end, and a timer a moment to fire.
const KILL_MARGIN: Duration = Duration::from_millis(50);
/// For a short lease, the margin is this fraction of the lease, if that is less than [`KILL_MARGIN`].
const KILL_MARGIN_FRACTION: u32 = 20;

/// How long work may go on, if no further answer comes from the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stop {
    /// After this time, notify the work to stop. Zero: now.
    pub term: Duration,
    /// After this time, the work has to be over. Zero: now.
    pub kill: Duration,
    /// The reason of the loss if the hold ends at that time.
    pub loss: Loss,
}

impl Stop {
    /// For a hold that is valid for another `remaining` of the granted time `granted`; the work needs `grace` to stop.
    #[doc(hidden)]
    #[must_use]
    pub fn new(remaining: Duration, granted: Duration, grace: Duration, loss: Loss) -> Self {
        let kill = remaining.saturating_sub(KILL_MARGIN.min(granted / KILL_MARGIN_FRACTION));
        Self { term: kill.saturating_sub(grace.min(granted / GRACE_FRACTION)), kill, loss }
    }

    /// Combines two causes that end a hold: takes the earlier notification to stop and the earlier time to kill.
    #[must_use]
    pub(crate) fn earlier(self, other: Self) -> Self {
        let first_notified = if self.term <= other.term { self } else { other };
        Self { kill: self.kill.min(other.kill), ..first_notified }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Instant, Lease, LeaseAction, Renewal};

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn work_is_notified_a_grace_before_it_is_killed() {
        let stop = Stop::new(secs(20), secs(30), secs(5), Loss::Lapsed);
        assert_eq!((stop.kill, stop.term), (secs(20) - KILL_MARGIN, secs(15) - KILL_MARGIN));
        let short = Stop::new(secs(1), Duration::from_millis(900), Duration::ZERO, Loss::Lapsed);
        assert_eq!((short.kill, short.term), (Duration::from_millis(955), Duration::from_millis(955)));
    }

    #[test]
    fn a_grace_is_at_most_a_third_of_what_was_granted() {
        assert_eq!(Stop::new(secs(29), secs(30), secs(300), Loss::Lapsed).term, secs(19) - KILL_MARGIN);
        assert_eq!(Stop::new(secs(6), secs(6), Duration::MAX, Loss::MaxHold).term, secs(4) - KILL_MARGIN);
    }

    #[test]
    fn an_ended_hold_stops_work_now() {
        let stop = Stop::new(Duration::ZERO, secs(30), secs(5), Loss::Lapsed);
        assert_eq!((stop.kill, stop.term), (Duration::ZERO, Duration::ZERO));
    }

    /// This many thousandths of `whole`.
    fn part(whole: Duration, thousandths: u32) -> Duration {
        whole * thousandths / 1000
    }

    proptest! {
        /// The smallest and largest ttl of every engine lie between 100 ms and 24 h. The granted time may be shorter,
        /// and may differ by half from renewal to renewal: ZooKeeper grants the remaining time of its session.
        #[test]
        fn a_healthy_engine_never_stops_work(
            ttl_millis in prop_oneof![100u64..2_000, 2_000u64..100_000, 100_000u64..86_400_000],
            // Both in thousandths of the granted time: how long the first answer takes, and how much it grants.
            (first_answer_time, first_granted) in (0u32..=100, 500u32..=1000),
            most_of_ttl in prop_oneof![Just(1000u32), 10u32..=1000],
            grace_millis in prop_oneof![Just(0u64), 0u64..10_000, 0u64..100_000_000],
            // For each renewal: how long its answer takes and how much it grants, both in thousandths of the granted
            // time, and whether its first request gets no answer.
            answers in prop::collection::vec((0u32..=100, 500u32..=1000, any::<bool>()), 1..20),
            group in any::<Option<u16>>(),
        ) {
            let (ttl, grace) = (Duration::from_millis(ttl_millis), Duration::from_millis(grace_millis));
            let most = part(ttl, most_of_ttl).max(Duration::from_millis(50));
            let mut granted = part(most, first_granted);
            let mut sent_at = Instant::from_nanos(1_000_000_000);
            let mut lease = Lease::granted(sent_at, Some(granted), ttl, Renewal::Background);
            let mut now = sent_at.after(part(granted, first_answer_time));
            for (answer_time, granted_of_most, is_first_lost) in answers {
                let notified_in = |lease: &Lease, now| Stop::new(lease.deadline().since(now), lease.granted_time(), grace, Loss::Lapsed).term;
                prop_assert!(notified_in(&lease, now) > Duration::ZERO, "notified after a grant");
                for is_lost in [is_first_lost, false] {
                    if let LeaseAction::Sleep(at) = lease.step(now) {
                        now = at;
                    }
                    prop_assert_eq!(lease.step(now), LeaseAction::Renew);
                    prop_assert!(notified_in(&lease, now) > Duration::ZERO, "notified before a renewal was due");
                    sent_at = now;
                    lease.renewal_sent(now);
                    if !is_lost {
                        break;
                    }
                }
                now = now.after(part(granted, answer_time));
                prop_assert!(notified_in(&lease, now) > Duration::ZERO, "notified before an answer in time");
                granted = part(most, granted_of_most);
                lease.renewed(sent_at, now, Some(granted), group);
            }
        }

        /// For random numbers of all sizes.
        #[test]
        fn work_is_killed_after_its_notification_and_before_the_deadline(
            remaining in any::<u64>(), granted in any::<u64>(), grace in any::<u64>(),
        ) {
            let [remaining, granted, grace] = [remaining, granted, grace].map(Duration::from_nanos);
            let stop = Stop::new(remaining, granted, grace, Loss::Lapsed);
            prop_assert!(stop.term <= stop.kill && stop.kill <= remaining);
            prop_assert!(stop.kill - stop.term <= grace);
            prop_assert!(remaining.is_zero() || granted.is_zero() || stop.kill < remaining, "some time to end in");
        }
    }
}

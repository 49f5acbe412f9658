//! How far the clock of one node is ahead of ours, between two bounds. A pure machine, without clock or I/O.

use std::time::Duration;

use leasehold_core::Instant;

/// The bounds widen by the time since they were learned, divided by this: the rates of clocks may differ by a
/// hundredth.
const DRIFT_DIVISOR: i64 = 100;
/// The smallest difference that counts as a clock step, in microseconds.
const MIN_STEP_MICROS: i64 = 2_000;

/// By how much the clock of a node is ahead of ours, in microseconds: the two bounds. Negative: the clock is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockLead {
    pub(super) least: i64,
    pub(super) most: i64,
}

/// What is known of the clock of one node.
#[derive(Debug, Default)]
pub(super) struct ClockOffset {
    /// The bounds of how far the clock is ahead, and when they were learned; `None` before the first answer.
    known: Option<(ClockLead, Instant)>,
    /// After a forward step of the clock: until this moment, leases that still last on other nodes may have ended early
    /// on this node.
    suspended_until: Option<Instant>,
}

impl ClockOffset {
    /// Learns from an answer that arrived at `answered` to a request sent at `sent`, in which the node's clock was at
    /// `node_micros`.
    pub(super) fn learn(&mut self, sent: Instant, answered: Instant, node_micros: u64) {
        let node_micros = i64::try_from(node_micros).unwrap_or(i64::MAX);
        let new = ClockLead {
            least: node_micros.saturating_sub(our_micros(answered)),
            most: node_micros.saturating_sub(our_micros(sent)),
        };
        // Answers may arrive out of order.
        let now = self.known.map_or(answered, |(_, learned_at)| answered.max(learned_at));
        let next = match self.clock_lead(now) {
            Some(old) if new.least > old.most + MIN_STEP_MICROS => {
                let step = Duration::from_micros(new.most.abs_diff(old.least));
                self.suspended_until = self.suspended_until.max(Some(answered.after(step)));
                new
            }
            Some(old) if new.most + MIN_STEP_MICROS < old.least => new,
            Some(old) => {
                let (least, most) = (new.least.max(old.least), new.most.min(old.most));
                // If old and new bounds do not overlap, but the gap is less than a step, the two ends are swapped.
                ClockLead { least: least.min(most), most: most.max(least) }
            }
            None => new,
        };
        self.known = Some((next, now));
    }

    /// How far the node's clock is ahead of ours at `now`; `None` before the first answer.
    pub(super) fn clock_lead(&self, now: Instant) -> Option<ClockLead> {
        let (known, learned_at) = self.known?;
        let drift = i64::try_from(now.since(learned_at).as_micros()).unwrap_or(i64::MAX) / DRIFT_DIVISOR;
        Some(ClockLead { least: known.least.saturating_sub(drift), most: known.most.saturating_add(drift) })
    }

    /// For how long from now the node's votes do not count, because its clock stepped forward, if leases last `max_ttl`
    /// at most. `None`: the votes count.
    pub(super) fn suspended_for(&self, now: Instant, max_ttl: Duration) -> Option<Duration> {
        let suspended_for = self.suspended_until?.since(now).min(max_ttl);
        (!suspended_for.is_zero()).then_some(suspended_for)
    }
}

/// The time of our clock, in microseconds.
fn our_micros(instant: Instant) -> i64 {
    i64::try_from(instant.as_nanos() / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Learns from an answer; all times in milliseconds.
    fn learn(offset: &mut ClockOffset, sent: u64, answered: u64, server_millis: u64) {
        offset.learn(at(sent), at(answered), server_millis * 1000);
    }

    const MAX_TTL: Duration = Duration::from_secs(60);

    #[test]
    fn answers_narrow_the_bounds_and_time_widens_them() {
        let mut offset = ClockOffset::default();
        learn(&mut offset, 1000, 1100, 51_050);
        assert_eq!(offset.clock_lead(at(1100)), Some(ClockLead { least: 49_950_000, most: 50_050_000 }));
        learn(&mut offset, 1200, 1210, 51_205);
        assert_eq!(offset.clock_lead(at(1210)), Some(ClockLead { least: 49_995_000, most: 50_005_000 }));
        // A slow answer does not narrow the bounds.
        learn(&mut offset, 1210, 1310, 51_260);
        assert_eq!(offset.clock_lead(at(1310)), Some(ClockLead { least: 49_994_000, most: 50_006_000 }));
        assert_eq!(offset.clock_lead(at(2310)), Some(ClockLead { least: 49_984_000, most: 50_016_000 }));
        assert_eq!(offset.suspended_for(at(2310), MAX_TTL), None);
    }

    #[test]
    fn a_clock_step_suspends_the_vote_for_its_length() {
        let mut offset = ClockOffset::default();
        learn(&mut offset, 1000, 1001, 50_000);
        learn(&mut offset, 2000, 2001, 56_000);
        assert!(offset.suspended_for(at(2001), MAX_TTL).unwrap() >= Duration::from_secs(5));
        assert_eq!(offset.suspended_for(at(2001), Duration::from_secs(1)), Some(Duration::from_secs(1)));
        assert_eq!(offset.suspended_for(at(8000), MAX_TTL), None);
        // On a node whose clock was set back, leases last longer, so its votes count.
        learn(&mut offset, 9000, 9001, 40_000);
        assert_eq!(offset.suspended_for(at(9001), MAX_TTL), None);
        assert_eq!(offset.clock_lead(at(9001)), Some(ClockLead { least: 30_999_000, most: 31_000_000 }));
    }
}

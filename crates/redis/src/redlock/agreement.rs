//! Which nodes have clocks that agree. Votes of nodes whose clocks differ too much are not counted together: after a
//! clock step of a node a lease may have ended early there, and a client that connects after the step cannot see the
//! step itself.

use std::time::Duration;

use super::offset::ClockLead;

/// The clocks of nodes whose votes are counted together may differ by at most the ttl divided by this.
const TOLERANCE_DIVISOR: u32 = 20;
/// The clocks of nodes whose votes are counted together may differ by this at most, however long the ttl is.
const MAX_TOLERANCE: Duration = Duration::from_millis(200);

/// The tolerance: by how much the clocks of nodes that together grant a claim of this ttl may differ.
pub(super) fn tolerance(ttl: Duration) -> Duration {
    (ttl / TOLERANCE_DIVISOR).min(MAX_TOLERANCE)
}

/// How long a grant of this ttl is valid. A clock may step forward by twice the tolerance, from the largest allowed
/// difference behind the other clocks to the largest ahead of them, before other clients notice. Core subtracts the
/// margins for drift.
pub(super) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(tolerance(ttl) * 2)
}

/// The largest set of these nodes whose clocks certainly differ by no more than the tolerance. `clocks`: the number of
/// each node, and how far its clock is ahead of ours.
pub(super) fn largest_agreeing_set(clocks: &[(usize, ClockLead)], tolerance: Duration) -> Vec<usize> {
    let tolerance = i64::try_from(tolerance.as_micros()).unwrap_or(i64::MAX);
    let agreeing_with = |slowest: &ClockLead| -> Vec<usize> {
        let agrees = |clock_lead: &ClockLead| {
            clock_lead.least >= slowest.least && clock_lead.most.saturating_sub(slowest.least) <= tolerance
        };
        clocks.iter().filter(|(_, clock_lead)| agrees(clock_lead)).map(|(node, _)| *node).collect()
    };
    clocks.iter().map(|(_, slowest)| agreeing_with(slowest)).max_by_key(Vec::len).unwrap_or_default()
}

/// The largest set of these nodes whose clocks, as far as is known, may differ by no more than the tolerance.
pub(super) fn largest_possibly_agreeing_set(
    clocks: &[(usize, ClockLead)],
    tolerance: Duration,
) -> Vec<usize> {
    let tolerance = i64::try_from(tolerance.as_micros()).unwrap_or(i64::MAX);
    let agreeing_with = |other: &ClockLead| -> Vec<usize> {
        let agrees = |clock_lead: &ClockLead| {
            clock_lead.least.saturating_sub(other.most) <= tolerance
                && other.least.saturating_sub(clock_lead.most) <= tolerance
        };
        clocks.iter().filter(|(_, clock_lead)| agrees(clock_lead)).map(|(node, _)| *node).collect()
    };
    clocks.iter().map(|(_, other)| agreeing_with(other)).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_lead(least: i64, most: i64) -> ClockLead {
        ClockLead { least, most }
    }

    #[test]
    fn the_largest_set_that_certainly_agrees_is_found() {
        let tolerance = Duration::from_micros(100);
        let largest_agreeing_set = |clocks: &[ClockLead]| {
            let clocks: Vec<_> = clocks.iter().copied().enumerate().collect();
            largest_agreeing_set(&clocks, tolerance)
        };
        assert_eq!(largest_agreeing_set(&[]), Vec::<usize>::new());
        assert_eq!(
            largest_agreeing_set(&[clock_lead(0, 10), clock_lead(20, 30), clock_lead(90, 100)]),
            [0, 1, 2]
        );
        assert_eq!(
            largest_agreeing_set(&[clock_lead(0, 10), clock_lead(20, 30), clock_lead(900, 910)]),
            [0, 1]
        );
        assert_eq!(
            largest_agreeing_set(&[clock_lead(-900, -890), clock_lead(20, 30), clock_lead(0, 10)]),
            [1, 2]
        );
        // The bounds of one clock are too wide: that clock may differ by more than the tolerance.
        assert_eq!(largest_agreeing_set(&[clock_lead(0, 10), clock_lead(5, 102), clock_lead(1, 2)]), [0, 2]);
        assert_eq!(largest_agreeing_set(&[clock_lead(0, 101)]), Vec::<usize>::new(), "not even of itself");
        // More answers may show that they agree.
        let clocks = [(0, clock_lead(0, 300)), (1, clock_lead(350, 500)), (2, clock_lead(900, 950))];
        assert_eq!(largest_possibly_agreeing_set(&clocks, tolerance), [0, 1]);
    }

    #[test]
    fn the_validity_is_shorter_by_twice_the_tolerance() {
        let millis = Duration::from_millis;
        for (ttl, expected) in [(100, 90), (1000, 900), (4000, 3600), (30_000, 29_600)] {
            assert_eq!(validity(millis(ttl)), millis(expected));
        }
    }
}

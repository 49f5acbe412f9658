//! When to renew a lease: after a third of it, or slightly earlier to share a request with other renewals.

use std::time::Duration;

use crate::Instant;

/// A lease is renewed when a third of it has passed: two more tries fit before the deadline.
pub(crate) const RENEW_FRACTION: u32 = 3;
/// Renewal times are rounded down to multiples of this. So renewals that are due at about the same time are due at one
/// moment, and leave in one batch.
const RENEWAL_STEP: Duration = Duration::from_millis(20);
/// Turns (the common renewal times of a group) are multiples of this longer step, because sending and receiving is half
/// of the cost of a small request, and requests of one moment share it. Of 100,000 leases of 30 s, 400 are due at one
/// such moment.
const TURN_STEP: Duration = Duration::from_millis(40);
/// A shorter lease has no time to wait for other renewals.
const SHORT: Duration = Duration::from_secs(1);
/// In a group no lease is renewed before this fraction of it has passed. Less than a sixth, so that a lease that was
/// renewed halfway between two turns of its group can join the next turn even on a busy machine.
const SOONEST_FRACTION: u32 = 8;
/// A prime, which spreads groups with neighbouring numbers over any number of steps.
const SPREAD: u64 = 2_654_435_761;

/// When a lease without a group, whose request was sent at `sent`, is due: at a third of the granted `span`. `ttl` is
/// the requested time.
pub(crate) fn without_group(sent: Instant, span: Duration, ttl: Duration) -> Instant {
    let third = sent.after(span / RENEW_FRACTION);
    if ttl < SHORT {
        return third;
    }
    at_step(third)
}

/// When a lease of this group, whose renewal was sent at `sent`, is due again: never later than [`without_group`], and
/// at a turn of its group, at which all its leases of this span are due. The interval between turns is a third of the
/// span, rounded down to whole [`TURN_STEP`]s. A lease for which the next turn would be too early is due halfway to the
/// turn after it, and from then on at turns.
pub(crate) fn in_group(sent: Instant, span: Duration, ttl: Duration, group: u16) -> Instant {
    if span.min(ttl) < SHORT {
        return without_group(sent, span, ttl);
    }
    let third = sent.after(span / RENEW_FRACTION);
    let steps = nanos(span / RENEW_FRACTION) / nanos(TURN_STEP);
    let first_turn = u64::from(group) * SPREAD % steps * nanos(TURN_STEP);
    let since_turn = (third.as_nanos() - first_turn) % (steps * nanos(TURN_STEP));
    let turn = Instant::from_nanos(third.as_nanos() - since_turn);
    if turn >= sent.after(span / SOONEST_FRACTION) {
        return turn;
    }
    turn.after(TURN_STEP * (steps / 2) as u32)
}

/// The last multiple of [`RENEWAL_STEP`] at or before `at`.
fn at_step(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos() - at.as_nanos() % nanos(RENEWAL_STEP))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    const LONGEST: u64 = 24 * 3600 * 1000;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn turn_of(span: Duration) -> u64 {
        nanos(span / RENEW_FRACTION) / nanos(TURN_STEP) * nanos(TURN_STEP)
    }

    /// The times of successive renewals until `end`, each delayed as `late` says.
    fn rounds(
        first: Instant,
        span: Duration,
        group: u16,
        end: Instant,
        mut late: impl FnMut() -> Duration,
    ) -> Vec<Instant> {
        let mut dues = Vec::new();
        let mut sent = first;
        while sent < end {
            let due = in_group(sent, span, span, group);
            dues.push(due);
            sent = due.after(late());
        }
        dues
    }

    #[test]
    fn without_a_group_a_lease_is_due_at_a_third_on_the_grid() {
        assert_eq!(without_group(at(7), TTL, TTL), at(10_000));
        assert_eq!(without_group(at(7), Duration::from_millis(900), Duration::from_millis(900)), at(307));
        assert_eq!(without_group(at(7), Duration::from_millis(900), TTL), at(300), "by what was asked for");
    }

    #[test]
    fn holds_of_a_group_are_renewed_together() {
        // The holds come from 20 s to 30 s, and the turns of a group are 10 s apart.
        let groups: BTreeMap<u16, Vec<Instant>> = [0, 1, 12_345, u16::MAX]
            .into_iter()
            .map(|group| {
                let second =
                    |came: u64| rounds(at(came), TTL, group, at(60_000), || Duration::from_millis(3));
                let ends = (20_000..30_000).step_by(7).map(|came| *second(came).last().unwrap());
                (group, ends.collect())
            })
            .collect();
        for (group, ends) in groups {
            assert!(ends.windows(2).all(|two| two[0] == two[1]), "group {group}: {ends:?}");
        }
    }

    #[test]
    fn groups_are_spread_over_the_time_between_two_turns() {
        for span in [TTL, Duration::from_secs(1), Duration::from_secs(24 * 3600)] {
            let (came, mut fifths) = (at(LONGEST), [0_u32; 5]);
            let (end, turn) = (came.after(span * 2), turn_of(span));
            for slot in 0..8192 {
                let due = *rounds(came, span, slot, end, || Duration::ZERO).last().unwrap();
                fifths[(nanos(due.since(end)) * 5 / turn) as usize] += 1;
            }
            assert!(fifths.iter().all(|fifth| (900..2200).contains(fifth)), "{span:?}: {fifths:?}");
        }
    }

    #[test]
    fn a_shorter_grant_has_the_turns_of_its_own_span() {
        let short = Duration::from_millis(500);
        assert_eq!(in_group(at(7), short, TTL, 3), without_group(at(7), short, TTL));
        let span = Duration::from_secs(12);
        assert_eq!(in_group(at(7), span, TTL, 3), in_group(at(7), span, span, 3));
    }

    proptest! {
        /// For all leases, groups and times.
        #[test]
        fn no_turn_is_later_than_a_third_or_much_sooner(
            sent in 0..u64::MAX / 2,
            span in 1..LONGEST * 1_000_000,
            ttl in 1..LONGEST * 1_000_000,
            group in any::<u16>(),
        ) {
            let (sent, [span, ttl]) = (Instant::from_nanos(sent), [span, ttl].map(Duration::from_nanos));
            let due = in_group(sent, span, ttl, group);
            prop_assert!(due <= without_group(sent, span, ttl));
            if span.min(ttl) >= SHORT {
                prop_assert!(due >= sent.after(span / SOONEST_FRACTION));
                prop_assert!(due.as_nanos().is_multiple_of(nanos(TURN_STEP)));
            } else {
                prop_assert_eq!(due, without_group(sent, span, ttl));
            }
        }

        /// As long as no renewal is delayed by more than the slack, two holds of a group and span meet after two
        /// renewals at most, and then stay together.
        #[test]
        fn two_holds_of_a_group_stay_together(
            came in prop::array::uniform2(0..LONGEST),
            span in 1000..LONGEST,
            group in any::<u16>(),
            delays in prop::collection::vec(0_u32..1000, 1..20),
        ) {
            let span = Duration::from_millis(span);
            // An eighth and a sixth differ by a twenty-fourth; the halfway point and the turn are rounded to whole
            // steps.
            let most = (span / 24).saturating_sub(RENEWAL_STEP);
            let end = at(came[0].max(came[1])).after(span * 4);
            let mut delays = delays.iter().cycle();
            let [one, two] = came.map(|came| {
                let dues = rounds(at(came), span, group, end, || most * *delays.next().unwrap() / 1000);
                dues[dues.len() - 3..].to_vec()
            });
            prop_assert!(one.iter().any(|due| two.contains(due)), "{one:?} {two:?}");
            for dues in [&one, &two] {
                let apart = dues.windows(2).all(|two| nanos(two[1].since(two[0])) == turn_of(span));
                prop_assert!(apart, "{dues:?}");
            }
        }
    }
}

//! When to renew a lease: after a third of it, but after 20 s at the latest, or after the time that its user chose; or
//! slightly earlier to share a request with other renewals.

use std::time::Duration;

use crate::Instant;

/// A lease is renewed when a third of it has passed: two more tries fit before the deadline.
pub(crate) const RENEW_FRACTION: u32 = 3;
/// A lease whose user chose no interval is renewed at least this often. A renewal is also the question whether the hold
/// still exists: not every engine notifies a holder whose hold was broken or deleted, and a notification can be lost.
pub(crate) const LONGEST_INTERVAL: Duration = Duration::from_secs(20);
/// Renewal times are rounded down to multiples of this. So renewals that are due at about the same time are due at one
/// moment, and leave in one batch.
const RENEWAL_STEP: Duration = Duration::from_millis(20);
/// Turns (the common renewal times of a group) are multiples of this step. It is longer than [`RENEWAL_STEP`], so that
/// more renewals are sent together and share the cost of sending and receiving, which is half of the cost of a small
/// request. Of 100,000 leases of 30 s, 400 are due at one turn.
const TURN_STEP: Duration = Duration::from_millis(40);
/// A lease shorter than this is renewed after exactly a third of it: it has no time to share a request with other
/// renewals.
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// In a group no lease is renewed before this fraction of it, an eighth, has passed (of a long lease, three eighths of
/// [`LONGEST_INTERVAL`]). It is less than a sixth, so that a lease that was renewed halfway between two turns of its
/// group can join the next turn even on a busy machine.
const SOONEST_FRACTION: u32 = 8;
/// A large prime. Multiplied by it, groups with neighbouring numbers get turns that are far apart.
const GROUP_FACTOR: u64 = 2_654_435_761;

/// How long after a request the next renewal is due at the latest, if the user chose no interval.
fn longest_interval(granted_time: Duration) -> Duration {
    (granted_time / RENEW_FRACTION).min(LONGEST_INTERVAL)
}

/// When a lease without a group, whose last request was sent at `sent_at`, is to be renewed: after a third of
/// `granted_time`, or after [`LONGEST_INTERVAL`] if that is sooner, rounded down to a [`RENEWAL_STEP`] unless `ttl`,
/// the requested time, is short.
pub(crate) fn due_without_group(sent_at: Instant, granted_time: Duration, ttl: Duration) -> Instant {
    let due = sent_at.after(longest_interval(granted_time));
    if ttl < SHORT_LEASE { due } else { round_down_to_step(due) }
}

/// When a lease that is renewed each time that `every` has passed, and whose last request was sent at `sent_at`, is to
/// be renewed: rounded down like [`due_without_group`]. It is due when half of `granted_time` has passed at the latest.
pub(crate) fn due_every(every: Duration, sent_at: Instant, granted_time: Duration, ttl: Duration) -> Instant {
    let due = sent_at.after(every.min(granted_time / 2));
    if ttl < SHORT_LEASE { due } else { round_down_to_step(due).max(sent_at) }
}

/// When a lease of this group, whose renewal was sent at `sent_at`, is to be renewed again: never later than
/// [`due_without_group`]. The lease is due at the last turn of its group before a third of `granted_time`, or
/// [`LONGEST_INTERVAL`], has passed. All leases of the group with this granted time have the same turns, whose interval
/// is that time, rounded down to whole [`TURN_STEP`]s. If that turn would be too early (see [`SOONEST_FRACTION`]), the
/// lease is due halfway between it and the next turn, and from then on at turns.
pub(crate) fn due_in_group(sent_at: Instant, granted_time: Duration, ttl: Duration, group: u16) -> Instant {
    if granted_time.min(ttl) < SHORT_LEASE {
        return due_without_group(sent_at, granted_time, ttl);
    }
    let interval = longest_interval(granted_time);
    let latest = sent_at.after(interval);
    let steps_per_turn = nanos(interval) / nanos(TURN_STEP);
    let turn_interval = steps_per_turn * nanos(TURN_STEP);
    // The first turn of this group after the boot.
    let first_turn = u64::from(group) * GROUP_FACTOR % steps_per_turn * nanos(TURN_STEP);
    let since_turn = (latest.as_nanos() - first_turn) % turn_interval;
    let turn = Instant::from_nanos(latest.as_nanos() - since_turn);
    if turn >= sent_at.after(soonest_interval(granted_time)) {
        return turn;
    }
    turn.after(TURN_STEP * (steps_per_turn / 2) as u32)
}

/// How long after a request a lease in a group is renewed at the soonest.
fn soonest_interval(granted_time: Duration) -> Duration {
    (granted_time / SOONEST_FRACTION).min(LONGEST_INTERVAL * RENEW_FRACTION / SOONEST_FRACTION)
}

/// The last multiple of [`RENEWAL_STEP`] at or before this instant.
fn round_down_to_step(instant: Instant) -> Instant {
    Instant::from_nanos(instant.as_nanos() - instant.as_nanos() % nanos(RENEWAL_STEP))
}

/// A time in nanoseconds; the largest number if the time does not fit.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    /// The longest ttl, in milliseconds.
    const LONGEST_TTL: u64 = 24 * 3600 * 1000;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// The interval between two turns of a group, in nanoseconds.
    fn turn_interval(granted_time: Duration) -> u64 {
        nanos(longest_interval(granted_time)) / nanos(TURN_STEP) * nanos(TURN_STEP)
    }

    /// The due times of successive renewals until `end`. `next_delay` says how long after its due time each is sent.
    fn due_times(
        granted_at: Instant,
        granted_time: Duration,
        group: u16,
        end: Instant,
        mut next_delay: impl FnMut() -> Duration,
    ) -> Vec<Instant> {
        let mut times = Vec::new();
        let mut sent_at = granted_at;
        while sent_at < end {
            let due = due_in_group(sent_at, granted_time, granted_time, group);
            times.push(due);
            sent_at = due.after(next_delay());
        }
        times
    }

    #[test]
    fn without_a_group_a_lease_is_due_at_a_third_on_the_grid() {
        assert_eq!(due_without_group(at(7), TTL, TTL), at(10_000));
        assert_eq!(due_without_group(at(7), Duration::from_millis(900), Duration::from_millis(900)), at(307));
        assert_eq!(
            due_without_group(at(7), Duration::from_millis(900), TTL),
            at(300),
            "by what was asked for"
        );
    }

    #[test]
    fn a_long_lease_is_due_after_twenty_seconds_in_and_out_of_a_group() {
        for minutes in [2, 10, 24 * 60] {
            let long = Duration::from_secs(60 * minutes);
            assert_eq!(due_without_group(at(7), long, long), at(20_000));
            let due_times = due_times(at(7), long, 4711, at(600_000), || Duration::from_millis(3));
            let first = due_times[0].since(at(7));
            assert!((Duration::from_millis(7_500)..=LONGEST_INTERVAL).contains(&first), "{first:?}");
            let pauses = due_times.windows(2).skip(1).map(|pair| pair[1].since(pair[0]));
            assert!(pauses.clone().count() > 20 && pauses.into_iter().all(|pause| pause == LONGEST_INTERVAL));
        }
    }

    #[test]
    fn a_chosen_interval_is_kept_unless_the_grant_is_short() {
        let millis = Duration::from_millis;
        assert_eq!(due_every(millis(5_003), at(7), TTL, TTL), at(5_000));
        assert_eq!(due_every(millis(14_000), at(7), millis(2_000), TTL), at(1_000), "half of the grant");
        assert_eq!(due_every(millis(100), at(7), millis(900), millis(900)), at(107), "a short lease");
    }

    #[test]
    fn holds_of_a_group_are_renewed_together() {
        // The holds are granted from 20 s to 30 s, and the turns of a group are 10 s apart.
        let groups: BTreeMap<u16, Vec<Instant>> = [0, 1, 12_345, u16::MAX]
            .into_iter()
            .map(|group| {
                let due_times_of = |granted_at: u64| {
                    due_times(at(granted_at), TTL, group, at(60_000), || Duration::from_millis(3))
                };
                let last_ones =
                    (20_000..30_000).step_by(7).map(|granted_at| *due_times_of(granted_at).last().unwrap());
                (group, last_ones.collect())
            })
            .collect();
        for (group, last_ones) in groups {
            assert!(last_ones.windows(2).all(|pair| pair[0] == pair[1]), "group {group}: {last_ones:?}");
        }
    }

    #[test]
    fn groups_are_spread_over_the_time_between_two_turns() {
        for granted_time in [TTL, Duration::from_secs(1), Duration::from_secs(24 * 3600)] {
            let granted_at = at(LONGEST_TTL);
            let (end, interval) = (granted_at.after(granted_time * 2), turn_interval(granted_time));
            // How many of the groups have their turn in each fifth of the interval.
            let mut fifths = [0_u32; 5];
            for group in 0..8192 {
                let due = *due_times(granted_at, granted_time, group, end, || Duration::ZERO).last().unwrap();
                fifths[(nanos(due.since(end)) * 5 / interval) as usize] += 1;
            }
            assert!(fifths.iter().all(|fifth| (900..2200).contains(fifth)), "{granted_time:?}: {fifths:?}");
        }
    }

    #[test]
    fn a_shorter_grant_has_the_turns_of_its_own_span() {
        let short = Duration::from_millis(500);
        assert_eq!(due_in_group(at(7), short, TTL, 3), due_without_group(at(7), short, TTL));
        let granted_time = Duration::from_secs(12);
        assert_eq!(
            due_in_group(at(7), granted_time, TTL, 3),
            due_in_group(at(7), granted_time, granted_time, 3)
        );
    }

    proptest! {
        /// For random leases, groups and times.
        #[test]
        fn no_turn_is_later_than_a_third_or_much_sooner(
            sent_at in 0..u64::MAX / 2,
            granted_time in 1..LONGEST_TTL * 1_000_000,
            ttl in 1..LONGEST_TTL * 1_000_000,
            group in any::<u16>(),
        ) {
            let (sent_at, [granted_time, ttl]) = (Instant::from_nanos(sent_at), [granted_time, ttl].map(Duration::from_nanos));
            let due = due_in_group(sent_at, granted_time, ttl, group);
            prop_assert!(due <= due_without_group(sent_at, granted_time, ttl));
            if granted_time.min(ttl) >= SHORT_LEASE {
                prop_assert!(due >= sent_at.after(soonest_interval(granted_time)));
                prop_assert!(due.as_nanos().is_multiple_of(nanos(TURN_STEP)));
            } else {
                prop_assert_eq!(due, due_without_group(sent_at, granted_time, ttl));
            }
        }

        /// As long as no renewal is delayed by more than the slack, two holds of a group with equal granted times are
        /// due together after two renewals at most, and stay together from then on.
        #[test]
        fn two_holds_of_a_group_stay_together(
            granted_at in prop::array::uniform2(0..LONGEST_TTL),
            granted_time in 1000..LONGEST_TTL,
            group in any::<u16>(),
            delays in prop::collection::vec(0_u32..1000, 1..20),
        ) {
            let granted_time = Duration::from_millis(granted_time);
            // The slack: three eighths and a half of the interval differ by an eighth of it; the halfway point and the
            // turn are rounded to whole steps.
            let longest_delay = (longest_interval(granted_time) / 8).saturating_sub(RENEWAL_STEP);
            let end = at(granted_at[0].max(granted_at[1])).after(longest_interval(granted_time) * 12);
            let mut delays = delays.iter().cycle();
            let [first, second] = granted_at.map(|granted_at| {
                let times = due_times(at(granted_at), granted_time, group, end, || longest_delay * *delays.next().unwrap() / 1000);
                times[times.len() - 3..].to_vec()
            });
            prop_assert!(first.iter().any(|due| second.contains(due)), "{first:?} {second:?}");
            for times in [&first, &second] {
                let are_turns = times.windows(2).all(|pair| nanos(pair[1].since(pair[0])) == turn_interval(granted_time));
                prop_assert!(are_turns, "{times:?}");
            }
        }
    }
}

//! Whether the leases of a deadlock are renewed. A lease that is not renewed ends, and ends the deadlock.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{claims::Party, cycle::Deadlock};

/// Some engines tell in whole seconds when a lease ends.
const ROUNDING: Duration = Duration::from_secs(1);

/// When the leases of one deadlock were seen renewed, from look to look.
#[derive(Debug, Default)]
pub struct Renewals {
    leases: HashMap<Id, Lease>,
}

/// A hold: engine, name, claim id and token.
type Id = (String, String, String, Option<u64>);

/// What was seen of a lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// The latest time at which it ends without a further renewal.
    ends_before: Instant,
    /// The look that saw the last renewal.
    renewed: Option<Instant>,
}

impl Renewals {
    /// No look yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the deadlock as the next look shows it. The look was sent to the engines at `sent` and answered at
    /// `answered`. Returns since when each lease of the deadlock was seen renewed: the earliest of their last renewals.
    /// A hold without a known end counts as renewed now. `None`: a lease was not seen renewed yet, so the deadlock may
    /// end with this lease. Holds that are not part of the deadlock are forgotten.
    pub fn next(&mut self, deadlock: &Deadlock, sent: Instant, answered: Instant) -> Option<Instant> {
        let holds = deadlock.blocks.iter().map(|block| &block.blocker).filter(|blocker| blocker.holds);
        let leases = holds.filter_map(|hold| Some((id(hold), self.lease(hold, sent, answered)?)));
        self.leases = leases.collect();
        let mut renewed = self.leases.values().map(|lease| lease.renewed);
        renewed.try_fold(answered, |earliest, renewed| Some(earliest.min(renewed?)))
    }

    /// What is known of the lease of a hold after this look; `None` if the hold has no known end.
    fn lease(&self, hold: &Party, sent: Instant, answered: Instant) -> Option<Lease> {
        let remaining = hold.remaining?;
        let (ends_after, ends_before) =
            (sent.checked_add(remaining)?, answered.checked_add(remaining)?.checked_add(ROUNDING)?);
        Some(match self.leases.get(&id(hold)) {
            None => Lease { ends_before, renewed: None },
            Some(before) if ends_after > before.ends_before => Lease { ends_before, renewed: Some(answered) },
            Some(before) => Lease { ends_before: before.ends_before.min(ends_before), ..*before },
        })
    }
}

fn id(hold: &Party) -> Id {
    (hold.engine.clone(), hold.name.clone(), hold.id.clone(), hold.token)
}

#[cfg(test)]
mod tests {
    use leasehold::{Actor, HolderView, Mode, Name, View, WaiterView};

    use super::*;
    use crate::waits::{Finding, Look, MIN_APART, report};

    /// Two tasks that wait for each other, and whose holds have these times left.
    fn deadlock(remaining: [Option<f64>; 2]) -> Deadlock {
        let actors: [Actor; 2] = ["0000000000000001", "0000000000000002"].map(|id| id.parse().unwrap());
        let view = |index: usize| {
            let name = ["a", "b"][index];
            let mut view = View::free(Name::new(name).unwrap(), name.to_owned());
            let left = remaining[index].map(Duration::from_secs_f64);
            let mut holder = HolderView::new(format!("h{name}"), "me".into()).times(None, left);
            holder.actor = Some(actors[index]);
            view.add_holder(Mode::Exclusive, holder);
            let mut waiter = WaiterView::new(format!("w{name}"), "me".into(), None).of_mode(Mode::Exclusive);
            waiter.actor = Some(actors[1 - index]);
            view.waiters.push(waiter);
            view
        };
        let views = [view(0), view(1)];
        let look = Look { engine: "redis", fifo: true, views: &views };
        let found = report(&[look], &[look], MIN_APART).into_iter().next().unwrap();
        let Finding::Deadlock(deadlock) = found else { panic!("{found:?}") };
        deadlock
    }

    /// The answer to each of these looks, in seconds after the first one: when it was sent, how long it took, and the
    /// times that the leases had left.
    fn looks(looks: &[(f64, f64, [Option<f64>; 2])]) -> Vec<Option<f64>> {
        let (mut renewals, start) = (Renewals::new(), Instant::now());
        let look = |(at, took, remaining): &(f64, f64, [Option<f64>; 2])| {
            let sent = start + Duration::from_secs_f64(*at);
            let renewed =
                renewals.next(&deadlock(*remaining), sent, sent + Duration::from_secs_f64(*took))?;
            Some(renewed.duration_since(start).as_secs_f64())
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_deadlock_lasts_only_if_each_of_its_leases_is_renewed() {
        let both = |a, b| [Some(a), Some(b)];
        for (what, given, expected) in [
            (
                "the lease of a crashed host ends",
                vec![
                    (0.0, 0.0, both(9.0, 9.0)),
                    (2.0, 0.0, both(9.0, 7.0)),
                    (4.0, 0.0, both(7.0, 5.0)),
                    (6.0, 0.0, both(9.0, 3.0)),
                ],
                vec![None; 4],
            ),
            (
                "the earliest of the last renewals counts",
                vec![
                    (0.0, 0.0, both(9.0, 9.0)),
                    (3.0, 0.0, both(9.0, 6.0)),
                    (5.0, 0.0, both(7.0, 9.0)),
                    (8.0, 0.0, both(9.0, 6.0)),
                ],
                vec![None, None, Some(3.0), Some(5.0)],
            ),
            (
                "frequent renewals add up",
                vec![(0.0, 0.0, both(9.0, 9.0)), (0.9, 0.0, both(9.0, 9.0)), (1.8, 0.0, both(9.0, 9.0))],
                vec![None, None, Some(1.8)],
            ),
            (
                "a slow answer and whole seconds are no renewal",
                vec![(0.0, 5.0, both(9.0, 9.0)), (5.0, 0.0, both(9.0, 9.0)), (6.0, 0.0, both(9.0, 9.0))],
                vec![None; 3],
            ),
            (
                "a hold without a known end lasts",
                vec![(0.0, 1.0, [None, None]), (2.0, 1.0, [None, None]), (4.0, 0.0, [None, Some(9.0)])],
                vec![Some(1.0), Some(3.0), None],
            ),
        ] {
            assert_eq!(looks(&given), expected, "{what}");
        }
        assert_eq!(looks(&[(0.0, 0.0, [Some(1e19), None])]), [Some(0.0)], "longer than any time");
    }
}

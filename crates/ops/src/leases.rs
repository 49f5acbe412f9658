//! How long ago leases were renewed, from look to look. Most engines store only the end of a lease: a renewal moves it.

use std::{collections::HashMap, time::Duration};

use leasehold::{HolderView, View};

/// Some engines tell in whole seconds when a lease ends.
const ROUNDING: Duration = Duration::from_secs(1);
/// The owner that engines show when a name stays taken for its minimum hold time. Nobody renews it.
const MIN_HOLD_OWNER: &str = "kept";

/// What was seen of the leases of an engine.
#[derive(Debug, Default)]
pub struct Leases {
    known: HashMap<Id, Lease>,
}

/// A hold: the name, the claim id and the token.
type Id = (String, String, Option<u64>);

/// What was seen of a lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// The latest time at which it ends without a further renewal.
    ends_before: Duration,
    /// When the look was answered that was the first after the last renewal.
    renewed_before: Duration,
}

impl Leases {
    /// No look yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next look, and adds to it how long ago, at least, each lease was renewed, where the engine does not
    /// tell it. The look was sent to the engine at `sent` and answered at `answered`, both counted from any moment.
    pub fn next(&mut self, views: &mut [View], sent: Duration, answered: Duration) {
        let mut next = HashMap::new();
        for view in views {
            for holder in view.holders.iter_mut().filter(|holder| is_renewed(holder)) {
                let Some(remaining) = holder.remaining else { continue };
                let id = (view.name.as_str().to_owned(), holder.id.clone(), holder.token);
                let ends_after = sent.saturating_add(remaining);
                let ends_before = answered.saturating_add(remaining).saturating_add(ROUNDING);
                let lease = match self.known.get(&id) {
                    Some(before) if ends_after <= before.ends_before => {
                        Lease { ends_before: before.ends_before.min(ends_before), ..*before }
                    }
                    _ => Lease { ends_before, renewed_before: answered },
                };
                next.insert(id, lease);
                // A renewal within the rounding after that look cannot be told from none.
                let since = sent.saturating_sub(lease.renewed_before).saturating_sub(ROUNDING);
                holder.since_renewal = Some(since).filter(|since| !since.is_zero());
            }
        }
        self.known = next;
    }
}

/// Whether the end of the hold moves by renewals, and the engine does not tell when the last one was.
fn is_renewed(holder: &HolderView) -> bool {
    let is_ended = holder.broken || holder.owner == MIN_HOLD_OWNER;
    holder.since_renewal.is_none() && !is_ended && !holder.foreign && !holder.of_session
}

#[cfg(test)]
mod tests {
    use leasehold::Name;

    use super::*;

    fn view(holder: HolderView, remaining: f64) -> View {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        view.holders.push(holder.times(None, Some(Duration::from_secs_f64(remaining))));
        view
    }

    fn holder() -> HolderView {
        HolderView::new("i".into(), "o".into()).token(Some(7))
    }

    /// The seconds since the last renewal that each of these looks gives: when it was sent, how long it took, and the
    /// time that the lease had left.
    fn since(looks: &[(f64, f64, f64)]) -> Vec<Option<f64>> {
        let mut leases = Leases::new();
        let look = |&(at, took, remaining): &(f64, f64, f64)| {
            let sent = Duration::from_secs_f64(at);
            let mut views = [view(holder(), remaining)];
            leases.next(&mut views, sent, sent + Duration::from_secs_f64(took));
            views[0].holders[0].since_renewal.map(|since| since.as_secs_f64())
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_lease_whose_end_stays_is_not_renewed() {
        for (what, looks, expected) in [
            (
                "nothing renews it",
                vec![(0.0, 0.0, 30.0), (5.0, 0.0, 25.0), (20.0, 0.0, 10.0)],
                vec![None, Some(4.0), Some(19.0)],
            ),
            (
                "a renewal moves its end",
                vec![(0.0, 0.0, 30.0), (9.0, 0.0, 21.0), (11.0, 0.0, 29.0), (15.0, 0.0, 25.0)],
                vec![None, Some(8.0), None, Some(3.0)],
            ),
            (
                "renewals within the rounding add up",
                vec![(0.0, 0.0, 9.0), (0.9, 0.0, 9.0), (1.8, 0.0, 9.0)],
                vec![None; 3],
            ),
            (
                "the time of a slow answer does not count",
                vec![(0.0, 4.0, 30.0), (6.0, 0.0, 24.0)],
                vec![None, Some(1.0)],
            ),
        ] {
            assert_eq!(since(&looks), expected, "{what}");
        }
    }

    #[test]
    fn only_leases_that_are_renewed_are_looked_at() {
        let second = Duration::from_secs(1);
        let told = holder().renewed(None, Some(second));
        for (held, expected) in [
            (told, Some(second)),
            (holder().foreign(true), None),
            (holder().broken(true), None),
            (holder().of_session(), None),
            (HolderView::new("i".into(), "kept".into()), None),
        ] {
            let mut leases = Leases::new();
            for at in [0_u32, 10] {
                let mut views = [view(held.clone(), f64::from(30 - at))];
                leases.next(&mut views, second * at, second * at);
                assert_eq!(views[0].holders[0].since_renewal, expected, "{held:?}");
            }
        }
    }

    #[test]
    fn the_next_hold_of_a_claim_has_a_lease_of_its_own() {
        let (mut leases, second) = (Leases::new(), Duration::from_secs(1));
        leases.next(&mut [view(holder(), 20.0)], Duration::ZERO, Duration::ZERO);
        let mut next = [view(holder().token(Some(8)), 5.0)];
        leases.next(&mut next, second * 10, second * 10);
        assert_eq!(next[0].holders[0].since_renewal, None);
    }
}

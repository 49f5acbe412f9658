//! Faults by which one node of a Redlock loses locks. After such a fault the node has no vote for a while. If exactly a
//! majority of the nodes voted for a hold, and one of these nodes loses its lock, no majority finds the hold any more.
//! Then the release of the hold finds nothing, and operators do not see the hold. Nevertheless no other claim can be
//! granted before the deadline of the hold, because the node that lost its lock has no vote.

use std::{collections::BTreeMap, ops::RangeInclusive};

use leasehold_testkit::history::{AttemptId, Event, What};

use crate::adjusted_history::neutral;

/// The times of the faults of these kinds, in nanoseconds. Such a fault lasts until the node has its vote again.
pub(crate) fn fault_times(events: &[Event], kinds: &[&str]) -> Vec<RangeInclusive<u64>> {
    let (mut begins, mut fault_times) = (BTreeMap::new(), Vec::new());
    for event in events {
        match &event.what {
            What::NemesisBegin { kind } if kinds.contains(&kind.as_str()) => {
                begins.entry(kind.as_str()).or_insert(event.t);
            }
            What::NemesisEnd { kind } => {
                fault_times.extend(begins.remove(kind.as_str()).map(|begin| begin..=event.t));
            }
            _ => {}
        }
    }
    fault_times.extend(begins.into_values().map(|begin| begin..=u64::MAX));
    fault_times
}

/// The changes of the history for faults of these kinds, by the index of the event. A release that found nothing, of a
/// hold that overlaps such a fault, gets an unknown outcome. What operators saw during such a fault is removed.
pub(crate) fn changes(events: &[Event], kinds: &[&str]) -> BTreeMap<usize, What> {
    changes_during(events, &fault_times(events, kinds), "a node lost its vote")
}

/// The changes of the history for faults at these times. `why` says why the outcome of a release is unknown.
pub(crate) fn changes_during(
    events: &[Event],
    fault_times: &[RangeInclusive<u64>],
    why: &str,
) -> BTreeMap<usize, What> {
    let overlaps =
        |begin: u64, end: u64| fault_times.iter().any(|time| begin <= *time.end() && end >= *time.start());
    let mut grants: BTreeMap<AttemptId, u64> = BTreeMap::new();
    let mut changes = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::AcqOk { .. } => drop(grants.insert(event.attempt, event.t)),
            What::RelNotheld
                if grants.get(&event.attempt).is_some_and(|granted| overlaps(*granted, event.t)) =>
            {
                changes.insert(index, What::RelUnknown { err: why.to_owned() });
            }
            What::Truth { until, .. } if overlaps(event.t, until) => {
                changes.insert(index, neutral(event));
            }
            _ => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: &str = "node emptied";

    fn event(t: u64, attempt: AttemptId, what: What) -> Event {
        Event { run: 1, proc: 1, seq: t, t, task: 1, lock: "m1".to_owned(), attempt, what }
    }

    fn grant(t: u64, attempt: AttemptId) -> Event {
        let what = What::AcqOk {
            token: 1,
            lineage: String::new(),
            deadline: None,
            ttl: None,
            asked: None,
            watched: false,
            fixed: false,
        };
        event(t, attempt, what)
    }

    fn view(t: u64) -> Event {
        event(t, 0, What::Truth { until: t + 1, holders: Vec::new(), waiters: Vec::new() })
    }

    #[test]
    fn only_views_and_holds_beside_the_fault_are_excused() {
        let events = [
            grant(1, 6),
            event(2, 6, What::RelNotheld),
            view(3),
            grant(8, 7),
            event(10, 0, What::NemesisBegin { kind: FAULT.to_owned() }),
            view(15),
            event(20, 0, What::NemesisEnd { kind: FAULT.to_owned() }),
            event(25, 7, What::RelNotheld),
            grant(30, 8),
            event(35, 8, What::RelNotheld),
            view(40),
        ];
        assert_eq!(changes(&events, &[FAULT]).into_keys().collect::<Vec<_>>(), [5, 7]);
        assert_eq!(changes(&events, &["node stops"]), BTreeMap::new());
    }
}

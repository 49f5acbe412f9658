//! Faults by which one node of a Redlock loses locks. A hold whose votes are exactly a majority is then not found by a
//! majority any more, although no other claim can be granted before its deadline: the node has no vote for a while.
//! Its release finds nothing, and operators do not see it.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use leasehold_testkit::history::{AttemptId, Event, What, nanos};

/// For how long after its end such a fault has effects: until the node has its vote again.
const EFFECT: Duration = Duration::from_millis(2500);

/// The times in which faults of these kinds have effects, in nanoseconds.
fn times(events: &[Event], kinds: &[&str]) -> Vec<RangeInclusive<u64>> {
    let (mut begins, mut times) = (BTreeMap::new(), Vec::new());
    for event in events {
        match &event.what {
            What::NemesisBegin { kind } if kinds.contains(&kind.as_str()) => {
                begins.entry(kind.as_str()).or_insert(event.t);
            }
            What::NemesisEnd { kind } => {
                let begin = begins.remove(kind.as_str());
                times.extend(begin.map(|begin| begin..=event.t + nanos(EFFECT)));
            }
            _ => {}
        }
    }
    times.extend(begins.into_values().map(|begin| begin..=u64::MAX));
    times
}

/// The changes of the history for faults of these `kinds`: releases that found nothing are unknown, and operators'
/// views (by their index in the second list) prove nothing.
pub(crate) fn changes(events: &[Event], kinds: &[&str]) -> (BTreeMap<usize, What>, Vec<usize>) {
    let times = times(events, kinds);
    let overlaps =
        |begin: u64, end: u64| times.iter().any(|time| begin <= *time.end() && end >= *time.start());
    let mut grants: BTreeMap<AttemptId, u64> = BTreeMap::new();
    let (mut releases, mut views) = (BTreeMap::new(), Vec::new());
    for (at, event) in events.iter().enumerate() {
        match event.what {
            What::AcqOk { .. } => drop(grants.insert(event.attempt, event.t)),
            What::RelNotheld if overlaps(grants.get(&event.attempt).copied().unwrap_or(0), event.t) => {
                releases.insert(at, What::RelUnknown { err: "a node lost its vote".to_owned() });
            }
            What::Truth { until, .. } if overlaps(event.t, until) => views.push(at),
            _ => {}
        }
    }
    (releases, views)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: &str = "node emptied";
    const SECOND: u64 = 1_000_000_000;

    fn event(t: u64, attempt: AttemptId, what: What) -> Event {
        Event { run: 1, proc: 1, seq: t, t, task: 1, lock: "m1".to_owned(), attempt, what }
    }

    fn fault(begin: u64, end: u64) -> [Event; 2] {
        let kind = || FAULT.to_owned();
        [
            event(begin, 0, What::NemesisBegin { kind: kind() }),
            event(end, 0, What::NemesisEnd { kind: kind() }),
        ]
    }

    fn view(t: u64) -> Event {
        event(t, 0, What::Truth { until: t + 1, holders: Vec::new(), waiters: Vec::new() })
    }

    #[test]
    fn only_views_and_releases_beside_the_fault_are_excused() {
        let [begin, end] = fault(10 * SECOND, 11 * SECOND);
        let events = [
            view(9 * SECOND),
            event(9 * SECOND, 6, What::RelNotheld),
            begin,
            view(10 * SECOND + 5),
            end,
            event(13 * SECOND, 7, What::RelNotheld),
            view(13 * SECOND),
            event(14 * SECOND, 8, What::RelNotheld),
            view(14 * SECOND),
        ];
        let (releases, views) = changes(&events, &[FAULT]);
        // Attempts without a recorded grant began before the history.
        assert_eq!((releases.keys().copied().collect::<Vec<_>>(), views), (vec![5, 7], vec![3, 6]));
        assert_eq!(changes(&events, &["node stops"]), (BTreeMap::new(), Vec::new()));
    }
}

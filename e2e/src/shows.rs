//! Engines whose `show` locks a row for a moment, because their servers do not tell whether a row is locked. A try that
//! meets this lock is answered "taken", although nobody holds the name.

use std::collections::{BTreeMap, HashMap};

use leasehold_testkit::history::{AttemptId, Event, What};

/// The answers "taken" to requests during which the observer looked at the lock, by the index of the event, in a form
/// that says nothing about holds.
pub(crate) fn changes(events: &[Event]) -> BTreeMap<usize, What> {
    let mut looks: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
    for event in events {
        if let What::Truth { until, .. } = event.what {
            looks.entry(&event.lock).or_default().push((event.t, until));
        }
    }
    let (mut called, mut changes): (HashMap<AttemptId, u64>, BTreeMap<usize, What>) = Default::default();
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::AcqInv { .. } => drop(called.insert(event.attempt, event.t)),
            What::AcqTaken => {
                let begin = called.get(&event.attempt).copied().unwrap_or(event.t);
                // The observer looks again only after its previous look, so the looks are in order.
                let looks = looks.get(event.lock.as_str()).map_or(&[][..], Vec::as_slice);
                let next = looks.get(looks.partition_point(|look| look.1 < begin));
                if next.is_some_and(|look| look.0 <= event.t) {
                    changes.insert(index, What::AcqFail { err: "the observer locked it".to_owned() });
                }
            }
            _ => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use leasehold_core::Mode;
    use leasehold_testkit::history::RecordedMode;

    use super::*;

    fn event(t: u64, lock: &str, attempt: AttemptId, what: What) -> Event {
        Event { run: 1, proc: 1, seq: t, t, task: 1, lock: lock.to_owned(), attempt, what }
    }

    fn refused(lock: &str, attempt: AttemptId, begin: u64, end: u64) -> [Event; 2] {
        let mode = RecordedMode(Mode::Exclusive);
        let call = What::AcqInv { mode, limit: Some(0), within: None, retries: false };
        [event(begin, lock, attempt, call), event(end, lock, attempt, What::AcqTaken)]
    }

    #[test]
    fn only_refusals_during_a_look_at_the_same_lock_are_excused() {
        let look =
            |t, until| event(t, "m1", 0, What::Truth { until, holders: Vec::new(), waiters: Vec::new() });
        let mut events = vec![look(10, 20), look(30, 40)];
        events.extend(refused("m1", 1, 5, 9));
        events.extend(refused("m1", 2, 15, 16));
        events.extend(refused("m1", 3, 21, 29));
        events.extend(refused("m1", 4, 25, 45));
        events.extend(refused("m2", 5, 15, 16));
        assert_eq!(changes(&events).into_keys().collect::<Vec<_>>(), [5, 9]);
    }
}

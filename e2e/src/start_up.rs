//! A server that ends all holds when it starts again, and then grants nothing for a time (the lock delay). A former
//! holder that was not told may still rely on its hold. Meanwhile the server does not have that hold, and answers
//! "taken" for names that nobody holds.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use leasehold_testkit::history::{AttemptId, Event, What, nanos};

use crate::lost_votes;

/// The changes of the history for a server whose faults of these kinds end all holds, by the index of the event.
/// `delay` is the lock delay. A release that found nothing, of a hold that overlaps such a fault, gets an unknown
/// outcome. What operators saw during such a fault and the delay after it is removed, and an answer "taken" of that
/// time says nothing about holds.
pub(crate) fn changes(events: &[Event], kinds: &[&str], delay: Duration) -> BTreeMap<usize, What> {
    if kinds.is_empty() {
        return BTreeMap::new();
    }
    let mut times: Vec<RangeInclusive<u64>> = lost_votes::fault_times(events, kinds)
        .into_iter()
        .map(|time| *time.start()..=time.end().saturating_add(nanos(delay)))
        .collect();
    let mut changes = lost_votes::changes_during(events, &times, "the server ended all holds");
    // The server was started at the begin of the round, too.
    times.extend(first_use(events).map(|first| 0..=first.saturating_add(nanos(delay))));
    let mut called: BTreeMap<AttemptId, u64> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::AcqInv { .. } => drop(called.insert(event.attempt, event.t)),
            What::AcqTaken => {
                let begin = called.get(&event.attempt).copied().unwrap_or(event.t);
                if times.iter().any(|time| begin <= *time.end() && event.t >= *time.start()) {
                    changes.insert(index, What::AcqFail { err: "the server had just started".to_owned() });
                }
            }
            _ => {}
        }
    }
    changes
}

/// The time of the first request.
fn first_use(events: &[Event]) -> Option<u64> {
    events.iter().find(|event| matches!(event.what, What::AcqInv { .. })).map(|event| event.t)
}

#[cfg(test)]
mod tests {
    use leasehold_core::Mode;
    use leasehold_testkit::history::RecordedMode;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn event(second: u64, attempt: AttemptId, what: What) -> Event {
        let (t, lock) = (second * SECOND, "m1".to_owned());
        Event { run: 1, proc: 1, seq: second, t, task: 1, lock, attempt, what }
    }

    fn call(second: u64, attempt: AttemptId) -> Event {
        let mode = RecordedMode(Mode::Exclusive);
        event(second, attempt, What::AcqInv { mode, limit: Some(0), within: None, retries: false })
    }

    /// The server restarts from the tenth to the twelfth second, and grants nothing for two seconds after each start.
    #[test]
    fn only_refusals_during_a_start_and_the_lock_delay_are_excused() {
        let restart = || "restart".to_owned();
        let events = [
            call(1, 1),
            event(2, 1, What::AcqTaken),
            call(4, 2),
            event(5, 2, What::AcqTaken),
            event(10, 0, What::NemesisBegin { kind: restart() }),
            event(12, 0, What::NemesisEnd { kind: restart() }),
            call(13, 3),
            event(13, 3, What::AcqTaken),
            event(13, 0, What::Truth { until: 13 * SECOND, holders: Vec::new(), waiters: Vec::new() }),
            call(15, 4),
            event(16, 4, What::AcqTaken),
            event(16, 0, What::Truth { until: 16 * SECOND, holders: Vec::new(), waiters: Vec::new() }),
        ];
        let delay = Duration::from_secs(2);
        assert_eq!(changes(&events, &["restart"], delay).into_keys().collect::<Vec<_>>(), [1, 7, 8]);
        assert_eq!(changes(&events, &[], delay), BTreeMap::new());
    }
}

//! Adds to a history the ends of attempts whose executor was dropped, because no code recorded these ends. The drop of
//! the executor drops the guards and futures of its tasks, and so releases the holds and cancels the acquires. The kill
//! of a process does neither.

use std::collections::BTreeMap;

use leasehold_testkit::history::{AttemptId, Event, What};

/// The end events of all attempts of one process that were open when its executor was dropped, at the time `t`.
#[must_use]
pub fn end_events(events: &[Event], t: u64) -> Vec<Event> {
    let mut open: BTreeMap<AttemptId, (bool, &Event)> = BTreeMap::new();
    for event in events.iter().filter(|event| event.attempt != 0) {
        match event.what {
            What::AcqTaken
            | What::AcqFail { .. }
            | What::AcqUnknown { .. }
            | What::Cancel
            | What::RelInv { .. } => {
                open.remove(&event.attempt);
            }
            What::RelOk | What::RelNotheld | What::RelUnknown { .. } => {}
            _ => {
                let (granted, last) = open.entry(event.attempt).or_insert((false, event));
                *granted |= matches!(event.what, What::AcqOk { .. });
                *last = event;
            }
        }
    }
    let seq = events.iter().map(|event| event.seq + 1).max().unwrap_or(0);
    let end_event = |(seq, (granted, last)): (u64, (bool, &Event))| Event {
        seq,
        // A task that was running at the time of the drop continued to its next await.
        t: t.max(last.t),
        what: if granted { What::RelInv { min_hold: None, sure: None } } else { What::Cancel },
        ..last.clone()
    };
    (seq..).zip(open.into_values()).map(end_event).collect()
}

//! I0: the history itself is complete and consistent: every event has its cause, and no record is missing.

use std::collections::BTreeMap;

use super::{Invariant, Verdict, finding::Finding, history_index::HistoryIndex};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Shape);
    for &(event_index, why) in &index.contradictions {
        finding.violated(&[], &[event_index], || why.to_owned());
    }
    // For each process, the number of its events and the index of the last one.
    let mut events_by_process: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for (event_index, event) in index.events.iter().enumerate() {
        finding.checked();
        // Two tasks of one process may record their events in another order than the order of the times, so this check
        // only counts the sequence numbers.
        let (count, last_event) = events_by_process.entry(event.proc).or_default();
        (*count, *last_event) = (*count + 1, event_index);
    }
    let mut largest_seq: BTreeMap<u32, u64> = BTreeMap::new();
    for event in index.events {
        let seq = largest_seq.entry(event.proc).or_default();
        *seq = event.seq.max(*seq);
    }
    for (proc, (count, last_event)) in events_by_process {
        let expected = largest_seq[&proc] + 1;
        if count != expected {
            finding.violated(&[], &[last_event], || {
                format!("process {proc} recorded {expected} events, {count} are here")
            });
        }
    }
    finding.done()
}

//! I0: the history itself is complete and consistent: every event has its cause, and no record is missing.

use std::collections::BTreeMap;

use super::{Invariant, Verdict, finding::Finding, history_index::HistoryIndex};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Shape);
    for &(at, why) in &index.strays {
        finding.violated(&[], &[at], || why.to_owned());
    }
    let mut last: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for (at, event) in index.events.iter().enumerate() {
        finding.checked();
        // The events of two tasks of a process may be recorded in another order than their times, so the numbers are
        // only counted.
        let (count, position) = last.entry(event.proc).or_default();
        (*count, *position) = (*count + 1, at);
    }
    let mut largest: BTreeMap<u32, u64> = BTreeMap::new();
    for event in index.events {
        let seq = largest.entry(event.proc).or_default();
        *seq = event.seq.max(*seq);
    }
    for (proc, (count, position)) in last {
        let expected = largest[&proc] + 1;
        if count != expected {
            finding.violated(&[], &[position], || {
                format!("process {proc} recorded {expected} events, {count} are here")
            });
        }
    }
    finding.done()
}

//! I6: after the run there is nothing that was not there before it.

use std::collections::BTreeMap;

use super::{Invariant, Verdict, finding::Finding, history_index::HistoryIndex};
use crate::history::{Phase, What};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Leaks);
    let mut starts: BTreeMap<u32, (usize, &BTreeMap<String, u64>)> = BTreeMap::new();
    let mut rests: BTreeMap<u32, (usize, &BTreeMap<String, u64>)> = BTreeMap::new();
    for (event_index, event) in index.events.iter().enumerate() {
        match &event.what {
            What::Probe { phase: Phase::Start, found } => {
                starts.entry(event.proc).or_insert((event_index, found));
            }
            What::Probe { phase: Phase::Rest, found } => {
                rests.insert(event.proc, (event_index, found));
            }
            _ => {}
        }
    }
    for (proc, (start_at, start)) in &starts {
        let Some((rest_at, rest)) = rests.get(proc) else {
            finding.violated(&[], &[*start_at], || {
                format!("process {proc} was probed at the start and never at rest")
            });
            continue;
        };
        for (kind, count) in *rest {
            finding.checked();
            let before = start.get(kind).copied().unwrap_or(0);
            if *count > before {
                finding.violated(&[], &[*start_at, *rest_at], || {
                    format!("{before} {kind} at the start, {count} at rest")
                });
            }
        }
    }
    for (proc, (rest_at, _)) in rests.iter().filter(|(proc, _)| !starts.contains_key(proc)) {
        finding.violated(&[], &[*rest_at], || {
            format!("process {proc} was probed at rest and never at the start")
        });
    }
    finding.done()
}

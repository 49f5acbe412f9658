//! When the machine gave no time. A stall is measured and not estimated, so it extends a limit by exactly its length.

use std::collections::HashMap;

use super::history_index::{HistoryIndex, merged};

/// The begin and the end.
pub(super) type Span = (u64, u64);

/// The stalls of a run. Each list is sorted and has no overlaps.
#[derive(Default)]
pub(super) struct Stalls {
    /// Stalls of something that all processes share.
    of_all: Vec<Span>,
    /// Stalls of one process.
    own: HashMap<u32, Vec<Span>>,
    /// Both kinds, for each process that has stalls of its own.
    both: HashMap<u32, Vec<Span>>,
}

impl Stalls {
    pub(super) fn add(&mut self, victim: Option<u32>, span: Span) {
        match victim {
            Some(process) => self.own.entry(process).or_default().push(span),
            None => self.of_all.push(span),
        }
    }

    /// Call this when all stalls are added.
    pub(super) fn settle(&mut self) {
        self.of_all = merged(std::mem::take(&mut self.of_all));
        for (process, spans) in &mut self.own {
            *spans = merged(std::mem::take(spans));
            self.both.insert(*process, merged(spans.iter().chain(&self.of_all).copied().collect()));
        }
    }

    /// The number of stalls.
    pub(super) fn count(&self) -> usize {
        self.of_all.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn of_all(&self) -> &[Span] {
        &self.of_all
    }

    /// The stalls of the process alone, between two times.
    pub(super) fn own(&self, process: u32, from: u64, until: u64) -> impl Iterator<Item = Span> {
        within(self.own.get(&process).map_or(&[], Vec::as_slice), from, until)
    }

    /// The time by which the machine has given a process `time` since `t`.
    fn given(&self, process: u32, mut t: u64, mut time: u64) -> u64 {
        let spans = self.both.get(&process).unwrap_or(&self.of_all);
        for (from, until) in within(spans, t, u64::MAX) {
            if from > t.saturating_add(time) {
                break;
            }
            time -= from - t;
            t = until;
        }
        t.saturating_add(time)
    }
}

impl HistoryIndex<'_> {
    /// The time by which a process has had `time` since `t`, if only the machine delays it.
    pub(super) fn given(&self, process: u32, t: u64, time: u64) -> u64 {
        self.stalls.given(process, t, time)
    }

    /// The latest time for an action that is `due` and may take `time`. Stalls extend the limit. After a stop of the
    /// process the time counts again from its start.
    pub(super) fn latest(&self, process: u32, due: u64, time: u64) -> u64 {
        let patience = self.given(process, due, time) - due;
        self.given(process, self.awake(process, due, patience), time)
    }
}

/// The parts of the spans between two times.
pub(super) fn within(spans: &[Span], from: u64, until: u64) -> impl Iterator<Item = Span> {
    let first = spans.partition_point(|span| span.1 <= from);
    let meets = spans[first..].iter().take_while(move |span| span.0 < until);
    meets.map(move |span| (span.0.max(from), span.1.min(until)))
}

/// The total length of the spans between two times.
pub(super) fn length_within(spans: &[Span], from: u64, until: u64) -> u64 {
    within(spans, from, until).map(|(from, until)| until - from).sum()
}

//! When the machine gave no processor or disk time. A stall is measured and not estimated, so it extends a time limit
//! by exactly its length.

use std::collections::HashMap;

use super::history_index::{HistoryIndex, merged};

/// The begin and the end of a stall.
pub(super) type Span = (u64, u64);

/// The stalls of a run. Each list is sorted and has no overlaps.
#[derive(Default)]
pub(super) struct Stalls {
    /// Stalls of something that all processes share, such as a server or its disk.
    shared: Vec<Span>,
    /// Stalls of one process.
    own: HashMap<u32, Vec<Span>>,
    /// The stalls of a process and of everything shared, for each process that has stalls of its own.
    by_process: HashMap<u32, Vec<Span>>,
}

impl Stalls {
    /// Adds a stall of a process or, with `None`, of something shared.
    pub(super) fn add(&mut self, victim: Option<u32>, span: Span) {
        match victim {
            Some(process) => self.own.entry(process).or_default().push(span),
            None => self.shared.push(span),
        }
    }

    /// Sorts and merges the stalls. The caller must call this one time, after all stalls were added.
    pub(super) fn merge(&mut self) {
        self.shared = merged(std::mem::take(&mut self.shared));
        for (process, spans) in &mut self.own {
            *spans = merged(std::mem::take(spans));
            self.by_process.insert(*process, merged(spans.iter().chain(&self.shared).copied().collect()));
        }
    }

    /// The number of stalls.
    pub(super) fn count(&self) -> usize {
        self.shared.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    /// The stalls of something that all processes share.
    pub(super) fn shared(&self) -> &[Span] {
        &self.shared
    }

    /// The stalls of this process that overlap the range between two times, cut to this range. Stalls of shared things
    /// are not included.
    pub(super) fn own(&self, process: u32, from: u64, until: u64) -> impl Iterator<Item = Span> {
        within(self.own.get(&process).map_or(&[], Vec::as_slice), from, until)
    }

    /// The time by which the machine has given a process a total of `time` since `t`.
    fn extended_by_stalls(&self, process: u32, mut t: u64, mut time: u64) -> u64 {
        let spans = self.by_process.get(&process).unwrap_or(&self.shared);
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
    /// The time by which the machine has given a process a total of `time` since `t`. Pauses of the process do not
    /// count.
    pub(super) fn extended_by_stalls(&self, process: u32, t: u64, time: u64) -> u64 {
        self.stalls.extended_by_stalls(process, t, time)
    }

    /// The latest time for an action that is due at `due` and may take `time`. Stalls extend this limit. If the process
    /// was paused meanwhile, `time` begins again when the process runs again.
    pub(super) fn latest_time(&self, process: u32, due: u64, time: u64) -> u64 {
        let delay = self.extended_by_stalls(process, due, time) - due;
        self.extended_by_stalls(process, self.resumed_at(process, due, delay), time)
    }
}

/// The spans that overlap the range between two times, cut to this range.
pub(super) fn within(spans: &[Span], from: u64, until: u64) -> impl Iterator<Item = Span> {
    let first = spans.partition_point(|span| span.1 <= from);
    let overlapping = spans[first..].iter().take_while(move |span| span.0 < until);
    overlapping.map(move |span| (span.0.max(from), span.1.min(until)))
}

/// The total length of the spans within the range between two times.
pub(super) fn length_within(spans: &[Span], from: u64, until: u64) -> u64 {
    within(spans, from, until).map(|(from, until)| until - from).sum()
}

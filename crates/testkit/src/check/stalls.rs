//! When the machine did not serve. A stall is measured, not allowed for, so it excuses for exactly as long as it lasted.

use std::collections::HashMap;

use super::history_index::{HistoryIndex, merged};

/// From when until when.
pub(super) type Span = (u64, u64);

/// The stalls of a run, each list without overlaps and in order.
#[derive(Default)]
pub(super) struct Stalls {
    /// Of what all share.
    of_all: Vec<Span>,
    /// Of each process.
    own: HashMap<u32, Vec<Span>>,
    /// Both, for each process that has stalls of its own.
    both: HashMap<u32, Vec<Span>>,
}

impl Stalls {
    pub(super) fn add(&mut self, victim: Option<u32>, span: Span) {
        match victim {
            Some(process) => self.own.entry(process).or_default().push(span),
            None => self.of_all.push(span),
        }
    }

    /// To be called when all are known.
    pub(super) fn settle(&mut self) {
        self.of_all = merged(std::mem::take(&mut self.of_all));
        for (process, spans) in &mut self.own {
            *spans = merged(std::mem::take(spans));
            self.both.insert(*process, merged(spans.iter().chain(&self.of_all).copied().collect()));
        }
    }

    /// How many there were.
    pub(super) fn count(&self) -> usize {
        self.of_all.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn of_all(&self) -> &[Span] {
        &self.of_all
    }

    /// Of the process alone, between two moments.
    pub(super) fn own(&self, process: u32, from: u64, until: u64) -> impl Iterator<Item = Span> {
        within(self.own.get(&process).map_or(&[], Vec::as_slice), from, until)
    }

    /// The moment by which the machine has given a process so much time since `t`.
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
    /// The moment by which a process has had so much time since `t`, as far as only the machine keeps it from it.
    pub(super) fn given(&self, process: u32, t: u64, time: u64) -> u64 {
        self.stalls.given(process, t, time)
    }

    /// The moment by which what is `due` must have been done, with so much time for it: counted anew when the process was
    /// stopped meanwhile, and without the time that the machine did not give.
    pub(super) fn latest(&self, process: u32, due: u64, time: u64) -> u64 {
        let patience = self.given(process, due, time) - due;
        self.given(process, self.awake(process, due, patience), time)
    }
}

/// The parts of spans that lie between two moments.
pub(super) fn within(spans: &[Span], from: u64, until: u64) -> impl Iterator<Item = Span> {
    let first = spans.partition_point(|span| span.1 <= from);
    let meets = spans[first..].iter().take_while(move |span| span.0 < until);
    meets.map(move |span| (span.0.max(from), span.1.min(until)))
}

/// How much of the time between two moments the spans are.
pub(super) fn length_within(spans: &[Span], from: u64, until: u64) -> u64 {
    within(spans, from, until).map(|(from, until)| until - from).sum()
}

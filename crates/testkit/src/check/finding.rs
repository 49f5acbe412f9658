//! Collects the result of one check.

use super::{
    Figure, Invariant, Outcome, Verdict, Violation, attempt_history::AttemptHistory,
    history_index::HistoryIndex,
};
use crate::history::{Event, What};

/// How many violations are shown in full. Further violations are only counted.
const MAX_SHOWN: usize = 10;

/// A verdict under construction.
pub(super) struct Finding<'b, 'h> {
    index: &'b HistoryIndex<'h>,
    verdict: Verdict,
}

impl<'b, 'h> Finding<'b, 'h> {
    pub(super) fn new(index: &'b HistoryIndex<'h>, invariant: Invariant) -> Self {
        let verdict = Verdict {
            invariant,
            outcome: Outcome::NotChecked,
            checked: 0,
            violations: 0,
            undecided: 0,
            figures: Vec::new(),
            examples: Vec::new(),
        };
        Self { index, verdict }
    }

    /// Counts one checked item.
    pub(super) fn checked(&mut self) {
        self.verdict.checked += 1;
    }

    /// Records a violation by these attempts, with further events that show it.
    pub(super) fn violated(
        &mut self,
        attempts: &[&AttemptHistory<'_>],
        further_events: &[usize],
        what: impl FnOnce() -> String,
    ) {
        if self.count_if_full() {
            return;
        }
        self.verdict.violations += 1;
        let mut event_indexes: Vec<usize> = attempts
            .iter()
            .flat_map(|attempt| self.bounding_events(attempt))
            .chain(further_events.iter().copied())
            .collect();
        event_indexes.sort_unstable();
        event_indexes.dedup();
        let excerpt: Vec<Event> =
            event_indexes.into_iter().map(|event| self.index.events[event].clone()).collect();
        let lock = attempts.first().map_or("", |attempt| attempt.lock);
        let lock = excerpt.first().map_or(lock, |event| event.lock.as_str()).to_owned();
        self.verdict.examples.push(Violation { lock, what: what(), excerpt });
    }

    /// Returns true, and counts a violation, if enough violations are shown already. Otherwise returns false and counts
    /// nothing; the caller must then report the violation in full.
    pub(super) fn count_if_full(&mut self) -> bool {
        let is_full = self.verdict.examples.len() >= MAX_SHOWN;
        self.verdict.violations += u64::from(is_full);
        is_full
    }

    /// Records that the search on one lock was given up.
    pub(super) fn undecided(&mut self) {
        self.verdict.undecided += 1;
    }

    /// Adds a figure.
    pub(super) fn figure(&mut self, name: &'static str, figure: Figure) {
        self.verdict.figures.push((name, figure));
    }

    /// Completes the verdict.
    pub(super) fn done(mut self) -> Verdict {
        let Verdict { checked, violations, undecided, .. } = self.verdict;
        self.verdict.outcome = match (violations, undecided, checked) {
            (1.., _, _) => Outcome::Violated,
            (0, 1.., _) => Outcome::Undecided,
            (0, 0, 1..) => Outcome::Holds,
            (0, 0, 0) => Outcome::NotChecked,
        };
        self.verdict
    }

    /// The events that bound the active hold of an attempt: all events of the attempt except checks, writes, and all
    /// renewals but the last acknowledged one.
    fn bounding_events(&self, attempt: &AttemptHistory<'_>) -> Vec<usize> {
        let last_renewal = attempt.renewals.last().map(|renewal| renewal.event);
        let bounding = |&event: &usize| match self.index.events[event].what {
            What::RenewOk { .. } => last_renewal == Some(event),
            What::RenewInv
            | What::RenewFail { .. }
            | What::Check { .. }
            | What::PublishInv { .. }
            | What::PublishOk { .. }
            | What::WriteInv { .. }
            | What::WriteOk { .. }
            | What::WriteFenced { .. } => false,
            _ => true,
        };
        attempt.events.iter().copied().filter(bounding).collect()
    }
}

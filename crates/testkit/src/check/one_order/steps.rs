//! The possible next steps of an order.

use super::search::Search;
use crate::check::hold_counts::{HoldCounts, can_conflict, permit_count};

/// The state of one order.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// The current holds.
    pub(super) held: Vec<usize>,
    /// Holds that began, and whose acquires have not returned yet.
    pub(super) begun_early: Vec<usize>,
    /// Refusals that were justified at some moment, and have not returned yet.
    pub(super) justified: Vec<usize>,
}

impl Search<'_, '_, '_> {
    /// The orders in which `hold` begins next, at `at` or earlier.
    pub(super) fn orders_with_begin(&self, order: &Order, hold: usize, at: u64) -> Vec<Order> {
        if self.token_conflict(order, hold).is_some() {
            return Vec::new();
        }
        let blockers = self.blockers(order, hold);
        let mode = |hold: usize| self.holds[hold].attempt.mode;
        if blockers.is_empty() {
            let mut next = order.clone();
            insert(&mut next.held, hold);
            insert(&mut next.begun_early, hold);
            self.mark_justified(&mut next);
            return vec![next];
        }
        // If `hold` wants permits and holds of permits with the same limit are in the way, some of these holds must end
        // first. Among those with the same count, the one with the earliest latest end is chosen. All other blockers
        // must end.
        let must_end =
            |&&other: &&usize| mode(hold).limit().is_none() || mode(other).limit() != mode(hold).limit();
        let mut ending = blockers.iter().find(must_end).map_or(blockers.clone(), |&first| vec![first]);
        ending.retain(|&other| *self.holds[other].end.start() <= at);
        ending.sort_by_key(|&other| (permit_count(mode(other)), *self.holds[other].end.end()));
        ending.dedup_by_key(|other| permit_count(mode(*other)));
        let after_end_of = |ended: usize| {
            let mut rest = order.clone();
            rest.held.retain(|held| *held != ended);
            self.orders_with_begin(&rest, hold, at)
        };
        ending.into_iter().flat_map(after_end_of).collect()
    }

    /// The current holds that prevent `hold` from beginning.
    pub(super) fn blockers(&self, order: &Order, hold: usize) -> Vec<usize> {
        let mode = self.holds[hold].attempt.mode;
        if self.hold_counts(order).admits(mode) {
            return Vec::new();
        }
        order
            .held
            .iter()
            .copied()
            .filter(|&other| can_conflict(mode, self.holds[other].attempt.mode))
            .collect()
    }

    fn hold_counts(&self, order: &Order) -> HoldCounts {
        order.held.iter().map(|&hold| self.holds[hold].attempt.mode).collect()
    }

    /// Whether the tokens allow that `other` begins before `hold`: they either require it, or imply no order of the
    /// two.
    fn precedes(&self, other: usize, hold: usize) -> bool {
        let (first, second) = (&self.holds[other], &self.holds[hold]);
        let (Some((lineage, token)), Some((other_lineage, other_token))) = (first.token, second.token) else {
            return false;
        };
        other != hold
            && lineage == other_lineage
            && token <= other_token
            && can_conflict(first.attempt.mode, second.attempt.mode)
    }

    /// A hold whose token contradicts the begin of `hold` now: by the order of tokens it begins before `hold` but has
    /// not begun yet, or it begins after `hold` but has begun already.
    pub(super) fn token_conflict(&self, order: &Order, hold: usize) -> Option<usize> {
        let (lineage, _) = self.holds[hold].token?;
        let waiting = self
            .pending
            .iter()
            .filter(|&&other| !order.begun_early.contains(&other) && self.precedes(other, hold));
        let (writer, any) = self.newest.get(lineage).copied().unwrap_or_default();
        let begun =
            order.begun_early.iter().chain(&writer).chain(&any).filter(|&&other| self.precedes(hold, other));
        waiting.chain(begun).next().copied()
    }

    /// Marks the refusals that are justified now.
    pub(super) fn mark_justified(&self, order: &mut Order) {
        let hold_counts = self.hold_counts(order);
        for &refusal in &self.open_tries {
            if !hold_counts.admits(self.refusals[refusal].attempt.mode) {
                insert(&mut order.justified, refusal);
            }
        }
    }
}

/// Keeps the list sorted, so that equal orders compare as equal.
pub(super) fn insert(numbers: &mut Vec<usize>, number: usize) {
    if let Err(index) = numbers.binary_search(&number) {
        numbers.insert(index, number);
    }
}

//! I8: an attempt that was queued before another attempt was called is granted before that other attempt.

use super::{
    Figure, Invariant, Verdict, attempt_history::AttemptHistory, finding::Finding,
    history_index::HistoryIndex, terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Order);
    let mut seen = Overtakes::default();
    for attempts in index.by_lock() {
        overtakes(index, &attempts, &mut seen, &mut finding);
    }
    finding.figure("most overtakes of one waiter", Figure::Most(seen.most));
    finding.figure("overtakes", Figure::Sum(seen.all));
    finding.done()
}

/// The numbers of overtakes: `most` is the largest number for one waiter, `all` is the sum over all waiters.
#[derive(Default)]
struct Overtakes {
    most: u64,
    all: u64,
}

/// The position of an attempt in the order of grants: the lineage and the number of its token. Acquires may return in
/// another order than the order of grants.
type GrantKey<'h> = (&'h str, u64);

/// The position of an attempt in the order of grants; `None` if it was not granted.
fn grant_key<'h>(attempt: &AttemptHistory<'h>) -> Option<GrantKey<'h>> {
    attempt.grant.map(|grant| (grant.lineage, grant.token))
}

/// For each waiter, counts the attempts that overtook it: they were called after the waiter was queued, and were
/// granted before the waiter was granted or gave up.
fn overtakes<'h>(
    index: &HistoryIndex<'h>,
    attempts: &[&AttemptHistory<'h>],
    seen: &mut Overtakes,
    finding: &mut Finding<'_, 'h>,
) {
    let mut granted: Vec<_> = attempts
        .iter()
        .filter(|attempt| attempt.grant.is_some() && attempt.outer_attempt.is_none())
        .copied()
        .collect();
    let mut ranks: Vec<_> = granted.iter().filter_map(|attempt| grant_key(attempt)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let rank = |grant_key: GrantKey<'h>| ranks.partition_point(|&other| other < grant_key);
    granted.sort_by_key(|attempt| attempt.returned());
    let mut by_call = granted.clone();
    by_call.sort_by_key(|attempt| std::cmp::Reverse(attempt.invoked));
    let mut waiters: Vec<_> =
        attempts.iter().filter_map(|attempt| waiter(index, attempt, &granted)).collect();
    waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.queued));
    // Goes through the waiters, beginning with the waiter that was queued last. When the overtakes of a waiter are
    // counted, the tree has every attempt that was called after the waiter was queued.
    let (mut tree, mut later) = (Counts::new(ranks.len()), by_call.into_iter().peekable());
    for Waiter { attempt, queued, before } in waiters {
        while let Some(attempt) = later.next_if(|attempt| attempt.invoked > queued) {
            tree.add(grant_key(attempt).map_or(0, rank));
        }
        let first_of_lineage = ranks.partition_point(|&(lineage, _)| lineage < before.0);
        let overtaken = tree.below(rank(before)) - tree.below(first_of_lineage);
        (seen.most, seen.all) = (seen.most.max(overtaken), seen.all + overtaken);
        let Some(allowed) = index.terms.overtakes else { continue };
        finding.checked();
        if overtaken > allowed {
            let is_after = |attempt: &&&AttemptHistory<'h>| {
                attempt.invoked > queued
                    && grant_key(attempt).is_some_and(|grant_key| grant_key.0 == before.0)
            };
            let first = granted.iter().filter(is_after).min_by_key(|attempt| grant_key(attempt));
            let shown: Vec<&AttemptHistory<'h>> = first.copied().into_iter().chain([attempt]).collect();
            finding.violated(&shown, &[], || {
                format!("{attempt} was overtaken {overtaken} times, {allowed} are allowed")
            });
        }
    }
}

/// A waiter that was queued at `queued`. `before` is the position of its grant or, if it gave up, a position that its
/// grant would have come after. An attempt that was called after `queued` must not be granted before this position.
struct Waiter<'b, 'h> {
    attempt: &'b AttemptHistory<'h>,
    queued: u64,
    before: GrantKey<'h>,
}

/// The attempt as a waiter; `None` if it never waited, or if its position in the order of grants is unknown. `granted`
/// is sorted by the time at which the acquire returned.
fn waiter<'b, 'h>(
    index: &HistoryIndex<'h>,
    attempt: &'b AttemptHistory<'h>,
    granted: &[&AttemptHistory<'h>],
) -> Option<Waiter<'b, 'h>> {
    let queued = attempt.queued.filter(|_| attempt.killed_at.is_none() && attempt.outer_attempt.is_none())?;
    let until = attempt.returned().unwrap_or(index.end);
    // A waiter that lost contact with the server for too long may have lost its queue entry.
    let storm = index.storms.partition_point(|storm| storm.1 <= queued);
    let storm = index.storms.get(storm).is_some_and(|storm| storm.0 < until);
    if storm || index.stopped(attempt.proc, queued, until).next().is_some() {
        return None;
    }
    let before = grant_key(attempt).or_else(|| {
        // The waiter gave up. If the acquire of another attempt returned more than `wake` earlier, its grant is earlier
        // than any grant that the waiter could have got: such a grant would have arrived before the waiter gave up.
        let arrived = until.saturating_sub(nanos(index.terms.wake));
        let last = granted.partition_point(|other| other.returned() < Some(arrived)).checked_sub(1)?;
        grant_key(granted[last]).map(|(lineage, token)| (lineage, token + 1))
    })?;
    Some(Waiter { attempt, queued, before })
}

/// Counts by rank; the sum of a range of ranks takes logarithmic time (Fenwick 1994).
struct Counts(Vec<u64>);

impl Counts {
    fn new(ranks: usize) -> Self {
        Self(vec![0; ranks + 1])
    }

    /// Adds one to the count of a rank.
    fn add(&mut self, rank: usize) {
        let mut index = rank + 1;
        while index < self.0.len() {
            self.0[index] += 1;
            index += index & index.wrapping_neg();
        }
    }

    /// The sum of the counts of all lower ranks.
    fn below(&self, rank: usize) -> u64 {
        let (mut index, mut sum) = (rank, 0);
        while index > 0 {
            sum += self.0[index];
            // Clears the lowest set bit.
            index -= index & index.wrapping_neg();
        }
        sum
    }
}

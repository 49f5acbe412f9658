//! I8: who stood in line before another asked is granted first.

use super::{Invariant, Terms, Verdict, book::Book, finding::Finding, life::Life};

pub(super) fn check(book: &Book<'_>, terms: &Terms) -> Verdict {
    let mut finding = Finding::new(book, Invariant::Order);
    let Some(allowed) = terms.overtakes else {
        finding.figure("order", "not promised");
        return finding.done();
    };
    let mut most = 0;
    for lives in book.by_lock() {
        most = most.max(overtakes(&lives, allowed, &mut finding));
    }
    finding.figure("most overtakes", most);
    finding.done()
}

/// Counts for each waiter who asked after it stood in line and was granted before it. Tokens tell the order of grants:
/// acquires return in another.
fn overtakes<'h>(lives: &[&Life<'h>], allowed: u64, finding: &mut Finding<'_, 'h>) -> u64 {
    let granted: Vec<_> =
        lives.iter().filter(|life| life.grant.is_some() && life.within.is_none()).copied().collect();
    let lineage = |life: &Life<'h>| life.grant.map_or("", |grant| grant.lineage);
    let token = |life: &Life<'h>| life.grant.map_or(0, |grant| grant.token);
    let mut ranks: Vec<_> = granted.iter().map(|life| (lineage(life), token(life))).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let rank = |life: &Life<'h>| ranks.partition_point(|&other| other < (lineage(life), token(life)));
    let mut by_call = granted.clone();
    by_call.sort_by_key(|life| std::cmp::Reverse(life.invoked));
    let mut waiters: Vec<_> = granted.iter().filter_map(|life| Some((life.queued?, *life))).collect();
    waiters.sort_by_key(|(queued, _)| std::cmp::Reverse(*queued));
    // From the last backwards: everybody who was called after the waiter queued is in the tree already.
    let (mut tree, mut later, mut most) = (Counts::new(ranks.len()), by_call.into_iter().peekable(), 0);
    for (queued, waiter) in waiters {
        while let Some(life) = later.next_if(|life| life.invoked > queued) {
            tree.add(rank(life));
        }
        finding.checked();
        let first_of_lineage = ranks.partition_point(|&(other, _)| other < lineage(waiter));
        let overtaken = tree.below(rank(waiter)) - tree.below(first_of_lineage);
        most = most.max(overtaken);
        if overtaken > allowed {
            let is_after = |life: &&&Life<'h>| life.invoked > queued && lineage(life) == lineage(waiter);
            let first = granted.iter().filter(is_after).min_by_key(|life| token(life));
            let shown: Vec<&Life<'h>> = first.copied().into_iter().chain([waiter]).collect();
            finding.violated(&shown, &[], || {
                format!("{waiter} was overtaken {overtaken} times, {allowed} are allowed")
            });
        }
    }
    most
}

/// Counts by rank, with sums in logarithmic time (Fenwick 1994).
struct Counts(Vec<u64>);

impl Counts {
    fn new(ranks: usize) -> Self {
        Self(vec![0; ranks + 1])
    }

    fn add(&mut self, rank: usize) {
        let mut at = rank + 1;
        while at < self.0.len() {
            self.0[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// How many are of a lower rank.
    fn below(&self, rank: usize) -> u64 {
        let (mut at, mut sum) = (rank, 0);
        while at > 0 {
            sum += self.0[at];
            at -= at & at.wrapping_neg();
        }
        sum
    }
}

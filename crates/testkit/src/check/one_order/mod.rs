//! I3 and I13: one order of grants, releases and expiries explains all answers to the users of a lock, including
//! "taken".
//!
//! The requests to a lock overlap in time: an acquire returns some time after its call. The lock is correct if there is
//! an order of begins and ends of holds, one after the other, in which each step happens within its time and every
//! answer is true (linearizability). This module searches for such an order, after Wing and Gong (1993) and Lowe
//! (2017). A violation is an answer that is true in no order.
//!
//! Each step has a window: the earliest and the latest time at which it can happen.
//!
//! - A hold begins between the call of its acquire and the return.
//! - A hold that was released with a certain answer ends between the call of the release and the answer.
//! - Any other hold ends between the earliest expiry of its lease on the server and the time by which its lease has
//!   certainly ended.
//! - A refused try must find the name held, or another claim in the queue, at some time between its call and its
//!   return: a new claim never overtakes the queue.
//! - An attempt with an unknown outcome may have held the lock or not, so the search does not place it. It only counts
//!   as a possible claim in the queue, which explains refusals.
//!
//! The search goes through the history once and keeps all orders that are possible so far. Where no request is in
//! flight, usually a single order is left, so the duration of the search is linear in the length of the history. If the
//! number of orders exceeds a limit, the search is given up, and the verdict on the lock is "undecided". Existing
//! crates for such searches (stateright, todc-utils) have no such limit, and cannot express a step that happens after
//! its answer or never, such as the expiry of a lease.

mod search;
mod steps;
mod window;

use super::{
    Figure, Invariant, Verdict, attempt_history::AttemptHistory, finding::Finding,
    history_index::HistoryIndex,
};
use search::{Conflict, ConflictKind, Search, Undecided};
use window::{Hold, Refusal};

/// The verdicts on I3 and on I13.
pub(super) fn check(index: &HistoryIndex<'_>) -> [Verdict; 2] {
    let mut order = Finding::new(index, Invariant::OneOrder);
    let mut taken = Finding::new(index, Invariant::Taken);
    let mut max_orders = 1;
    for attempts in index.by_lock() {
        let holds = window::holds(index, &attempts);
        holds.iter().for_each(|_| order.checked());
        let ordered = judge(&holds, &[], &mut max_orders, &mut order);
        // If the holds have no order, the refusals cannot be judged.
        if ordered {
            let refusals = window::refusals(index, &attempts, || taken.checked());
            judge(&holds, &refusals, &mut max_orders, &mut taken);
        }
    }
    taken.figure("most orders at once", Figure::Most(max_orders as u64));
    [order.done(), taken.done()]
}

/// Whether there is an order that explains all answers of one lock. If there is none, reports the conflicts.
fn judge(
    holds: &[Hold<'_, '_>],
    refusals: &[Refusal<'_, '_>],
    max_orders: &mut usize,
    finding: &mut Finding<'_, '_>,
) -> bool {
    match Search::new(holds, refusals).run() {
        Err(Undecided) => {
            finding.undecided();
            false
        }
        Ok(result) => {
            *max_orders = result.max_orders.max(*max_orders);
            let ordered = result.conflicts.is_empty();
            result
                .conflicts
                .into_iter()
                .for_each(|conflict| report_conflict(holds, refusals, conflict, finding));
            ordered
        }
    }
}

/// Reports a conflict as a violation, with the attempts that show it.
fn report_conflict(
    holds: &[Hold<'_, '_>],
    refusals: &[Refusal<'_, '_>],
    conflict: Conflict,
    finding: &mut Finding<'_, '_>,
) {
    if finding.count_if_full() {
        return;
    }
    let attempt = |hold: usize| holds[hold].attempt;
    let assumed: Vec<_> = conflict.assumed_refusal.iter().map(|&refusal| refusals[refusal].attempt).collect();
    let condition =
        assumed.first().map_or(String::new(), |refusal| format!(", if {refusal} was rightly refused"));
    match conflict.kind {
        ConflictKind::Overlap(hold, others) => {
            let others: Vec<_> = others.iter().map(|&other| attempt(other)).collect();
            let shown = [&assumed[..], &others, &[attempt(hold)]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was granted while {} held the lock{condition}", attempt(hold), joined(&others))
            });
        }
        ConflictKind::TokenOrder(hold, other) => {
            let shown = [&assumed[..], &[attempt(other), attempt(hold)]].concat();
            finding.violated(&shown, &[], || {
                let (hold, other) = (attempt(hold), attempt(other));
                format!("{hold} was granted after {other}, against the order of their tokens{condition}")
            });
        }
        ConflictKind::Unjustified(refusal) => {
            let refusal = &refusals[refusal];
            let earlier_holds = holds.iter().filter(|hold| hold.begin.end() < refusal.during.end());
            let last = earlier_holds.max_by_key(|hold| hold.end.end().min(refusal.during.end()));
            let shown = [last.map(|hold| hold.attempt).as_slice(), &[refusal.attempt]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was answered taken, although nothing was in its way", refusal.attempt)
            });
        }
    }
}

/// The attempts as a list in a sentence.
fn joined(attempts: &[&AttemptHistory<'_>]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

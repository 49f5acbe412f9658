//! I3 and I13: one order of grants, releases and expiries explains all answers to the users of a lock, including
//! "taken".
//!
//! This is linearizability with expiry, after Wing and Gong (1993) and Lowe (2017). The search follows all possible
//! orders at once, adds an operation only when it must, and merges equal orders. Where no operation is in flight,
//! usually a single order is left, so the time is linear in the length of the history. Existing crates for such
//! searches (stateright, todc-utils) support no operation that may happen after its answer or never, and have no bound.
//!
//! A grant takes place between the call of an acquire and its return. A hold ends within its release. If the release
//! has no certain answer, the hold ends between the earliest expiry that the server may see and the time from which
//! nothing of it can be left. A refused try must have met a hold, unless another claim was or may have been queued: a
//! newcomer never overtakes the queue. An attempt with an unknown outcome needs no position in an order, because it can
//! only be in the way of others.

mod search;
mod steps;
mod window;

use super::{
    Figure, Invariant, Verdict, attempt_history::AttemptHistory, finding::Finding,
    history_index::HistoryIndex,
};
use search::{Conflict, Fault, Search, Undecided};
use window::{Hold, Refusal};

/// The verdicts on I3 and on I13.
pub(super) fn check(index: &HistoryIndex<'_>) -> [Verdict; 2] {
    let mut order = Finding::new(index, Invariant::OneOrder);
    let mut taken = Finding::new(index, Invariant::Taken);
    let mut most = 1;
    for attempts in index.by_lock() {
        let holds = window::holds(index, &attempts);
        holds.iter().for_each(|_| order.checked());
        let ordered = judge(&holds, &[], &mut most, &mut order);
        // If the holds have no order, refusals prove nothing.
        if ordered {
            let refusals = window::refusals(index, &attempts, || taken.checked());
            judge(&holds, &refusals, &mut most, &mut taken);
        }
    }
    taken.figure("most orders at once", Figure::Most(most as u64));
    [order.done(), taken.done()]
}

/// Whether there is an order. If not, reports the conflicts.
fn judge(
    holds: &[Hold<'_, '_>],
    refusals: &[Refusal<'_, '_>],
    most: &mut usize,
    finding: &mut Finding<'_, '_>,
) -> bool {
    match Search::new(holds, refusals).run() {
        Err(Undecided) => {
            finding.undecided();
            false
        }
        Ok(found) => {
            *most = found.most.max(*most);
            let ordered = found.faults.is_empty();
            found.faults.into_iter().for_each(|fault| report_fault(holds, refusals, fault, finding));
            ordered
        }
    }
}

fn report_fault(
    holds: &[Hold<'_, '_>],
    refusals: &[Refusal<'_, '_>],
    fault: Fault,
    finding: &mut Finding<'_, '_>,
) {
    if finding.count_if_full() {
        return;
    }
    let attempt = |hold: usize| holds[hold].attempt;
    let given: Vec<_> = fault.given.iter().map(|&refusal| refusals[refusal].attempt).collect();
    let if_true =
        given.first().map_or(String::new(), |refusal| format!(", if {refusal} was rightly refused"));
    match fault.what {
        Conflict::Beside(hold, others) => {
            let others: Vec<_> = others.iter().map(|&other| attempt(other)).collect();
            let shown = [&given[..], &others, &[attempt(hold)]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was granted while {} held the lock{if_true}", attempt(hold), joined(&others))
            });
        }
        Conflict::Disordered(hold, other) => {
            let shown = [&given[..], &[attempt(other), attempt(hold)]].concat();
            finding.violated(&shown, &[], || {
                let (hold, other) = (attempt(hold), attempt(other));
                format!("{hold} was granted after {other}, against the order of their tokens{if_true}")
            });
        }
        Conflict::Unjustified(refusal) => {
            let refusal = &refusals[refusal];
            let before = holds.iter().filter(|hold| hold.begin.end() < refusal.during.end());
            let last = before.max_by_key(|hold| hold.end.end().min(refusal.during.end()));
            let shown = [last.map(|hold| hold.attempt).as_slice(), &[refusal.attempt]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was answered taken, although nothing was in its way", refusal.attempt)
            });
        }
    }
}

fn joined(attempts: &[&AttemptHistory<'_>]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

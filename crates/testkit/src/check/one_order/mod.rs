//! I3 and I13: one order of grants, releases and expiries explains what users saw of a lock, also that it was taken.
//!
//! Linearizability with expiry, after Wing and Gong (1993) and Lowe (2017): all orders are followed at once, an operation is
//! put into them when it has to be, and equal ones are one. Where nothing is under way a single order is left as a rule, so
//! that the length of a history costs no more than its length. The crates that search for such orders (stateright,
//! todc-utils) know no operation that may happen later than its answer or never, and no bound.
//!
//! A grant takes place between the call of an acquire and its return. Its hold ends within its release; where that told
//! nothing, from the expiry on that the server may know at the earliest, until nothing can be left of it. Who was refused
//! must have met a hold, unless somebody stood in line, or may have: a newcomer never goes before a line. Attempts
//! of unknown outcome need no place in an order, for all that they can do is to be in the way.

mod search;
mod steps;
mod window;

use super::{Figure, Invariant, Verdict, finding::Finding, history_index::HistoryIndex, life::Life};
use search::{Conflict, Fault, Search, Undecided};
use window::{Hold, Refusal};

/// The verdicts on I3 and on I13.
pub(super) fn check(index: &HistoryIndex<'_>) -> [Verdict; 2] {
    let mut order = Finding::new(index, Invariant::OneOrder);
    let mut taken = Finding::new(index, Invariant::Taken);
    let mut most = 1;
    for lives in index.by_lock() {
        let holds = window::holds(index, &lives);
        holds.iter().for_each(|_| order.checked());
        let ordered = judge(&holds, &[], &mut most, &mut order);
        // Where the holds are out of order, refusals prove nothing.
        if ordered {
            let refusals = window::refusals(index, &lives, || taken.checked());
            judge(&holds, &refusals, &mut most, &mut taken);
        }
    }
    taken.figure("most orders at once", Figure::Most(most as u64));
    [order.done(), taken.done()]
}

/// Whether there is an order; else it is told what is in the way.
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
    let life = |hold: usize| holds[hold].life;
    let given: Vec<_> = fault.given.iter().map(|&refusal| refusals[refusal].life).collect();
    let if_true =
        given.first().map_or(String::new(), |refusal| format!(", if {refusal} was rightly refused"));
    match fault.what {
        Conflict::Beside(hold, others) => {
            let others: Vec<_> = others.iter().map(|&other| life(other)).collect();
            let shown = [&given[..], &others, &[life(hold)]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was granted while {} stood{if_true}", life(hold), joined(&others))
            });
        }
        Conflict::Disordered(hold, other) => {
            let shown = [&given[..], &[life(other), life(hold)]].concat();
            finding.violated(&shown, &[], || {
                let (hold, other) = (life(hold), life(other));
                format!("{hold} was granted after {other}, against the order of their tokens{if_true}")
            });
        }
        Conflict::Unjustified(refusal) => {
            let refusal = &refusals[refusal];
            let before = holds.iter().filter(|hold| hold.begin.end() < refusal.during.end());
            let last = before.max_by_key(|hold| hold.end.end().min(refusal.during.end()));
            let shown = [last.map(|hold| hold.life).as_slice(), &[refusal.life]].concat();
            finding.violated(&shown, &[], || {
                format!("{} was told taken, and nothing stood in its way", refusal.life)
            });
        }
    }
}

fn joined(lives: &[&Life<'_>]) -> String {
    lives.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

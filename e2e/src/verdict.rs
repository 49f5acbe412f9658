//! The verdict on a round. Only this module calls the checker of histories.

use std::time::Duration;

use leasehold_core::lock_state::entry_life;
use leasehold_testkit::{
    check::{Invariant, Terms, check},
    history::{Event, History, What, nanos},
};

use crate::{adjusted_history::AdjustedHistory, figures::Figures, speed::EngineSpeed, world::Promise};

/// The faults by which the server loses all earlier holds.
const FORGETTING_FAULTS: [&str; 2] = ["all flushed", "restart without data"];

/// The longest time that a pushed grant lasts before its client has to confirm it.
const CLAIM_TIME: Duration = Duration::from_secs(2);

/// By how much a wait may exceed its limit, in addition to the stalls of the machine. I12 allows a tenth of a second,
/// and the simulation uses that limit. In these rounds an operation goes through several threads and processes, and
/// each of them may wait a little for a processor. If several such waits follow each other within one interval of
/// [`Heartbeat`](crate::heartbeat), only the longest of them is measured as a stall.
const OVER_LIMIT: Duration = Duration::from_millis(250);

/// Judges the events of a round. Returns the figures, and a text for each violation.
#[must_use]
pub fn judge(events: &[Event], promise: Promise, speed: EngineSpeed) -> (Figures, Vec<String>) {
    let mut terms = Terms::default();
    terms.lossy = promise != Promise::Exclusion;
    // The claim of a dead waiter may be granted shortly before its queue entry expires. The grant then lasts for one
    // claim time.
    terms.entry_life = entry_life(speed.ttl).max(speed.entry_life) + CLAIM_TIME.min(speed.ttl);
    terms.precision = speed.precision;
    terms.overdue = speed.overdue;
    terms.stale = speed.stale;
    terms.over_limit = OVER_LIMIT;
    terms.wake = speed.wake;
    terms.poll = speed.poll;
    terms.set_back = promise == Promise::Doubt;
    let history = History::from_events(events.to_vec());
    let mut figures = Figures::of(history.events());
    let AdjustedHistory { history, doubts } = AdjustedHistory::of(&history, promise, &speed);
    figures.doubts = doubts;
    let report = check(&history, &terms);
    let mut complaints = Vec::new();
    for verdict in &report.verdicts {
        let name = verdict.invariant.to_string();
        figures.checked.insert(name.clone(), verdict.checked);
        if !promised(verdict.invariant, promise) {
            figures.overlaps_not_promised += verdict.violations;
            continue;
        }
        if verdict.undecided > 0 {
            figures.violations.insert(format!("{name}, undecided"), verdict.undecided);
            complaints.push(format!("{name}: {} locks were given up undecided", verdict.undecided));
        }
        if verdict.violations > 0 {
            figures.violations.insert(name.clone(), verdict.violations);
            complaints.extend(verdict.examples.iter().map(|example| format!("{name}\n{example}")));
        }
    }
    if promise == Promise::Fence {
        let (checked, unreported) = unreported_losses(history.events(), speed.ttl);
        figures.checked.insert("loss notice".to_owned(), checked);
        if !unreported.is_empty() {
            figures.violations.insert("loss notice".to_owned(), unreported.len() as u64);
            complaints.extend(unreported);
        }
    }
    (figures, complaints)
}

/// Whether a configuration with this promise also promises the invariant.
fn promised(invariant: Invariant, promise: Promise) -> bool {
    // A server that loses its data frees all holds. It also loses the queue; then the waiters claim again at their next
    // polls, in any order.
    promise == Promise::Exclusion || !matches!(invariant, Invariant::Exclusion | Invariant::Releases)
}

/// Counts the holds that the server lost, and reports each `check()` by which a lost hold was still valid more than one
/// ttl after the loss.
fn unreported_losses(events: &[Event], ttl: Duration) -> (u64, Vec<String>) {
    let (mut checked, mut unreported) = (0, Vec::new());
    let mut begin = 0;
    for end in events {
        match &end.what {
            // A restarted server may grant new holds before the end of the fault is recorded. So only holds that were
            // granted before the begin of the fault count as lost.
            What::NemesisBegin { kind } if FORGETTING_FAULTS.contains(&kind.as_str()) => {
                begin = end.t;
                continue;
            }
            What::NemesisEnd { kind } if FORGETTING_FAULTS.contains(&kind.as_str()) => {}
            _ => continue,
        }
        let granted = |event: &&Event| matches!(event.what, What::AcqOk { .. }) && event.t < begin;
        // Of the holds that the server lost, only those that were granted shortly before can still be valid.
        let recent = |event: &&Event| event.t + 10 * nanos(ttl) > end.t;
        let lost_attempts: Vec<_> =
            events.iter().filter(granted).filter(recent).map(|event| event.attempt).collect();
        // The time of a check's event is read before the check itself reads the clock, so the limit needs no allowance
        // for stalls between the two.
        let report_limit = end.t + nanos(ttl);
        checked += lost_attempts.len() as u64;
        for event in
            events.iter().filter(|event| event.t > report_limit && lost_attempts.contains(&event.attempt))
        {
            if matches!(event.what, What::Check { valid: true, .. }) {
                let after = (event.t - end.t) / 1_000_000;
                unreported.push(format!(
                    "the server lost the hold of attempt {:x} of {:?}, which was still valid {after} ms later",
                    event.attempt, event.lock
                ));
            }
        }
    }
    (checked, unreported)
}

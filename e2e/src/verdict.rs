//! The verdict on a round. Only this module calls the checker of histories.

use std::{collections::HashSet, time::Duration};

use leasehold_core::lock_state::entry_life;
use leasehold_testkit::{
    check::{Invariant, Terms, check},
    history::{Event, History, What, nanos},
};

use crate::{adjusted_history::AdjustedHistory, figures::Figures, speed::EngineSpeed, world::Promise};

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
    terms.kept_longer = speed.kept_longer;
    terms.stale = speed.stale;
    terms.over_limit = OVER_LIMIT;
    terms.wake = speed.wake;
    terms.poll = speed.poll;
    terms.ends_with_process = speed.ends_with_process;
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
    if promise == Promise::Fence || !speed.lost_by.is_empty() {
        let (checked, unreported) = unreported_losses(history.events(), &speed);
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
fn unreported_losses(events: &[Event], speed: &EngineSpeed) -> (u64, Vec<String>) {
    let ttl = speed.ttl;
    let (mut checked, mut unreported) = (0, Vec::new());
    let mut begin = 0;
    for end in events {
        match &end.what {
            // A restarted server may grant new holds before the end of the fault is recorded. So only holds that were
            // granted before the begin of the fault count as lost.
            What::NemesisBegin { kind } if speed.lost_by.contains(&kind.as_str()) => {
                begin = end.t;
                continue;
            }
            What::NemesisEnd { kind } if speed.lost_by.contains(&kind.as_str()) => {}
            _ => continue,
        }
        let granted = |event: &&Event| matches!(event.what, What::AcqOk { .. }) && event.t < begin;
        // Of the holds that the server lost, only those that were granted shortly before can still be valid.
        let recent = |event: &&Event| event.t + 10 * nanos(ttl) > end.t;
        let lost_attempts: HashSet<_> =
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session;

    const MILLI: u64 = 1_000_000;

    fn event(ms: u64, attempt: u64, what: What) -> Event {
        Event { run: 1, proc: 1, seq: ms, t: ms * MILLI, task: 1, lock: "m1".to_owned(), attempt, what }
    }

    fn granted(ms: u64, attempt: u64) -> Event {
        let lineage = String::new();
        let (deadline, ttl, asked) = (Some((ms + 1000) * MILLI), None, None);
        let what =
            What::AcqOk { token: attempt, lineage, deadline, ttl, asked, watched: false, fixed: false };
        event(ms, attempt, what)
    }

    /// A ttl is a second. The restart ends hold 1 and not hold 2, also in a round that requires exclusion.
    #[test]
    fn a_hold_of_an_ended_session_is_invalid_within_its_ttl() {
        let valid = |ms, attempt| event(ms, attempt, What::Check { valid: true, deadline: None });
        let kind = || session::RESTART.to_owned();
        let history = |checked_at| {
            [
                granted(10, 1),
                event(20, 0, What::NemesisBegin { kind: kind() }),
                event(30, 0, What::NemesisEnd { kind: kind() }),
                granted(40, 2),
                valid(checked_at, 1),
                valid(1100, 2),
            ]
        };
        let speed = EngineSpeed::of(session::POSTGRES);
        for (checked_at, complaints) in [(1020, 0), (1040, 1)] {
            let (checked, found) = unreported_losses(&history(checked_at), &speed);
            assert_eq!((checked, found.len()), (1, complaints), "{found:?}");
            let (figures, _) = judge(&history(checked_at), Promise::Exclusion, speed);
            assert_eq!(figures.violations.contains_key("loss notice"), complaints > 0);
        }
        let lease = EngineSpeed::of("postgres");
        assert_eq!(unreported_losses(&history(1040), &lease).0, 0, "a lease outlasts a restart");
    }
}

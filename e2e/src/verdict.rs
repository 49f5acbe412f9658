//! The verdict on a round: the only place that knows the checker.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use leasehold_core::queue::entry_life;
use leasehold_testkit::{
    check::{Invariant, Terms, check},
    history::{AttemptId, Event, History, Phase, What},
};

use crate::{figures::Figures, task::TTL, world::Promise};

/// After these, nothing is left of what was held before.
const FORGETTING: [&str; 2] = ["all flushed", "restart without data"];

/// Another program holds the lock meanwhile.
const STRANGER: &str = "foreign flock";

/// By how much the machine, not the lock, may delay the end of a belief.
const SLACK: Duration = Duration::from_millis(10);

/// Judges the events of a round; the figures, and in words what was violated.
#[must_use]
pub fn judge(events: &[Event], promise: Promise) -> (Figures, Vec<String>) {
    let mut terms = Terms::default();
    terms.lossy = promise != Promise::Exclusion;
    terms.place = entry_life(TTL);
    terms.set_back = promise == Promise::Doubt;
    let history = History::from_events(events.to_vec());
    let mut figures = Figures::of(history.events());
    let doubts = doubts(history.events());
    figures.doubts = doubts.len() as u64;
    let mut left_out = inner_stops(history.events());
    left_out.extend(refusals_for_strangers(history.events()));
    if promise == Promise::Doubt {
        left_out.extend(doubts);
        left_out.extend(doubted_on_arrival(history.events()));
    }
    let report = check(&without(&history, &left_out), &terms);
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
        let (checked, untold) = untold_losses(history.events());
        figures.checked.insert("loss notice".to_owned(), checked);
        if !untold.is_empty() {
            figures.violations.insert("loss notice".to_owned(), untold.len() as u64);
            complaints.extend(untold);
        }
    }
    (figures, complaints)
}

/// Answers of `check()` that said no for a moment: where a clock stepped, until the hold was renewed, found to be lost, or
/// released.
fn doubts(events: &[Event]) -> BTreeSet<usize> {
    let mut open: BTreeMap<AttemptId, Vec<usize>> = BTreeMap::new();
    let mut doubts = BTreeSet::new();
    for (at, event) in events.iter().enumerate() {
        match event.what {
            What::Check { valid: false, .. } => open.entry(event.attempt).or_default().push(at),
            What::Check { valid: true, .. } | What::Lost { .. } | What::RelInv { .. } => {
                doubts.extend(open.remove(&event.attempt).unwrap_or_default());
            }
            _ => {}
        }
    }
    doubts
}

/// All that was told of holds that were in doubt when their users got them, and may not have been over.
fn doubted_on_arrival(events: &[Event]) -> BTreeSet<usize> {
    let (mut doubted, mut told) = (BTreeSet::new(), BTreeSet::new());
    for (at, event) in events.iter().enumerate() {
        if let What::AcqOk { deadline: Some(deadline), .. } = event.what
            && deadline < event.t
        {
            doubted.insert(event.attempt);
        }
        if doubted.contains(&event.attempt) {
            told.insert(at);
        }
    }
    told
}

/// Stops within stops, and their ends: to the checker the first end is the end.
fn inner_stops(events: &[Event]) -> BTreeSet<usize> {
    let mut depths: BTreeMap<u32, u32> = BTreeMap::new();
    let mut inner = BTreeSet::new();
    for (at, event) in events.iter().enumerate() {
        match event.what {
            What::Stop { victim } => {
                let depth = depths.entry(victim).or_default();
                *depth += 1;
                if *depth > 1 {
                    inner.insert(at);
                }
            }
            What::Cont { victim } => {
                let depth = depths.entry(victim).or_default();
                *depth = depth.saturating_sub(1);
                if *depth > 0 {
                    inner.insert(at);
                }
            }
            _ => {}
        }
    }
    inner
}

/// Answers of "taken" while a foreign program, which stands in no history, may have held the lock.
fn refusals_for_strangers(events: &[Event]) -> BTreeSet<usize> {
    let (mut since, mut begins, mut told) = (None, BTreeMap::new(), BTreeSet::new());
    // When the last one let go.
    let mut gone = 0;
    for (at, event) in events.iter().enumerate() {
        match &event.what {
            What::NemesisBegin { kind } if kind == STRANGER => since = Some(event.t),
            What::NemesisEnd { kind } if kind == STRANGER => (since, gone) = (None, event.t),
            What::AcqInv { .. } => drop(begins.insert(event.attempt, event.t)),
            What::AcqTaken
                if since.is_some() || begins.get(&event.attempt).is_some_and(|begin| *begin < gone) =>
            {
                told.insert(at);
            }
            _ => {}
        }
    }
    told
}

/// The history without some events: they stay, for the record must be whole, but say nothing.
fn without(history: &History, left_out: &BTreeSet<usize>) -> History {
    let events = history.events().iter().enumerate().map(|(at, event)| {
        let mut event = event.clone();
        if left_out.contains(&at) {
            let nothing = What::Probe { phase: Phase::Running, found: BTreeMap::new() };
            event.what = match event.what {
                What::AcqTaken => What::AcqFail { err: "a stranger held it".to_owned() },
                What::AcqOk { .. } => What::AcqUnknown { err: "in doubt".to_owned() },
                _ if event.attempt == 0 => nothing,
                _ => What::RenewInv,
            };
        }
        event
    });
    History::from_events(events.collect())
}

fn promised(invariant: Invariant, promise: Promise) -> bool {
    // A server that forgets frees what is held; and it forgets the waiters as well, which come back at their own pace.
    promise == Promise::Exclusion || !matches!(invariant, Invariant::Exclusion | Invariant::Releases)
}

/// Holds that the server forgot, and that were believed for longer than their lease all the same.
fn untold_losses(events: &[Event]) -> (u64, Vec<String>) {
    let (mut checked, mut untold) = (0, Vec::new());
    let forgot = |event: &&Event| matches!(&event.what, What::NemesisEnd { kind } if FORGETTING.contains(&kind.as_str()));
    for end in events.iter().filter(forgot) {
        let granted = |event: &&Event| matches!(event.what, What::AcqOk { .. }) && event.t < end.t;
        // Only what was granted shortly before can live so long; and of that, only what nobody granted again since.
        let recent = |event: &&Event| event.t + 10 * nanos(TTL) > end.t;
        let before: Vec<_> =
            events.iter().filter(granted).filter(recent).map(|event| event.attempt).collect();
        let late = end.t + nanos(TTL) + nanos(SLACK);
        checked += before.len() as u64;
        for event in events.iter().filter(|event| event.t > late && before.contains(&event.attempt)) {
            if matches!(event.what, What::Check { valid: true, .. }) {
                let after = (event.t - end.t) / 1_000_000;
                untold.push(format!(
                    "the server forgot attempt {:x} of {:?}, and it was called valid {after} ms later",
                    event.attempt, event.lock
                ));
            }
        }
    }
    (checked, untold)
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

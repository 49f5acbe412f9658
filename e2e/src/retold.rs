//! Prepares a history for the checker: events of a storm that the checker cannot know about are changed or left out.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::Mode;
use leasehold_testkit::history::{AttemptId, Event, History, Phase, What};

use crate::{doubts::Doubts, world::Promise};

/// The fault in which another program holds the lock.
const STRANGER: &str = "foreign flock";

/// A changed history.
pub struct Retold {
    /// All events: the checker requires a complete record.
    pub history: History,
    /// The number of `check()`s that failed for a moment.
    pub doubts: u64,
}

impl Retold {
    /// Changes the history. Where exclusion is promised, only faults of the kinds `doubted_after` are a reason to doubt
    /// a hold.
    #[must_use]
    pub fn of(history: &History, promise: Promise, doubted_after: &[&str]) -> Self {
        let events = history.events();
        let doubts = doubts(events);
        let count = doubts.len() as u64;
        let mut anew: BTreeMap<usize, What> = BTreeMap::new();
        anew.extend(inner_stops(events).into_iter().map(|at| (at, nothing(&events[at]))));
        let stranger = || What::AcqFail { err: "a stranger held it".to_owned() };
        anew.extend(refusals_for_strangers(events).into_iter().map(|at| (at, stranger())));
        anew.extend(keeps_of_readers(events));
        // A clock has stepped, or another server may have the locks now: holds are unconfirmed until they are renewed.
        let excused = match promise {
            Promise::Exclusion => Doubts::explained(events, doubted_after),
            _ => Doubts { denials: doubts, arrivals: doubted_on_arrival(events) },
        };
        anew.extend(excused.denials.into_iter().map(|at| (at, nothing(&events[at]))));
        anew.extend(uncertain(events, &excused.arrivals));
        let events = events.iter().enumerate().map(|(at, event)| match anew.remove(&at) {
            Some(what) => Event { what, ..event.clone() },
            None => event.clone(),
        });
        Self { history: History::from_events(events.collect()), doubts: count }
    }
}

/// An event without meaning, in the place of `event`.
fn nothing(event: &Event) -> What {
    match event.attempt {
        0 => What::Probe { phase: Phase::Running, found: BTreeMap::new() },
        _ => What::RenewInv,
    }
}

/// Failed `check()`s of holds that were renewed, found to be lost, or released after that.
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

/// The attempts whose holds were in doubt when their users got them, and may not have been over.
fn doubted_on_arrival(events: &[Event]) -> BTreeSet<AttemptId> {
    let arrivals = events.iter().filter_map(|event| match event.what {
        What::AcqOk { deadline: Some(deadline), .. } if deadline < event.t => Some(event.attempt),
        _ => None,
    });
    arrivals.collect()
}

/// The changed events of these attempts: it is unknown whether they were granted.
fn uncertain(events: &[Event], attempts: &BTreeSet<AttemptId>) -> BTreeMap<usize, What> {
    let (mut granted, mut told) = (BTreeSet::new(), BTreeMap::new());
    for (at, event) in events.iter().enumerate().filter(|(_, event)| attempts.contains(&event.attempt)) {
        if matches!(event.what, What::AcqOk { .. }) && granted.insert(event.attempt) {
            told.insert(at, What::AcqUnknown { err: "in doubt".to_owned() });
        } else if granted.contains(&event.attempt) {
            told.insert(at, nothing(event));
        }
    }
    told
}

/// Stops within stops, and their ends: the checker would take the first end for the end of all.
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

/// Releases of readers that keep the name for a time: the hold may have other guards in its process, and end with them,
/// or with the process.
fn keeps_of_readers(events: &[Event]) -> BTreeMap<usize, What> {
    let (mut readers, mut keeps) = (BTreeSet::new(), BTreeMap::new());
    for (at, event) in events.iter().enumerate() {
        match event.what {
            What::AcqInv { mode, .. } if mode.0 == Mode::Shared => drop(readers.insert(event.attempt)),
            What::RelInv { keep: Some(keep), .. } if readers.contains(&event.attempt) => {
                keeps.insert(at, What::RelInv { keep: Some(keep), sure: Some(0) });
            }
            _ => {}
        }
    }
    keeps
}

/// Answers of "taken" while a foreign program, which is in no history, may have held the lock.
fn refusals_for_strangers(events: &[Event]) -> BTreeSet<usize> {
    let (mut since, mut begins, mut told) = (None, BTreeMap::new(), BTreeSet::new());
    // When the foreign program released last.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seq: u64, valid: bool) -> Event {
        let (lock, what) = ("m1".to_owned(), What::Check { valid, deadline: None });
        Event { run: 1, proc: 1, seq, t: seq, task: 1, lock, attempt: 7, what }
    }

    /// Where another server may have replaced the master, every hold is unconfirmed until the new master has renewed
    /// it.
    #[test]
    fn a_hold_that_was_unconfirmed_for_a_moment_was_not_called_lost() {
        let history = History::from_events(vec![check(1, true), check(2, false), check(3, true)]);
        for (promise, left) in [(Promise::Exclusion, 1), (Promise::Fence, 0), (Promise::Doubt, 0)] {
            let retold = Retold::of(&history, promise, &[]);
            let denies = |event: &&Event| matches!(event.what, What::Check { valid: false, .. });
            assert_eq!(retold.history.events().iter().filter(denies).count(), left, "{promise:?}");
            assert_eq!(retold.doubts, 1);
        }
    }
}

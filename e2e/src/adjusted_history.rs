//! Prepares the recorded history of a round for the checker: changes events whose cause the checker cannot know.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::Mode;
use leasehold_testkit::history::{AttemptId, Event, History, Phase, What};

use crate::{doubts::Doubts, lost_votes, row, shows, speed::EngineSpeed, start_up, world::Promise};

/// The faults in which another program holds locks.
const FOREIGN_LOCKS: [&str; 2] = ["foreign flock", row::LOCKED_BY_OTHER];

/// A changed history.
pub struct AdjustedHistory {
    /// All events, because the checker requires a complete record.
    pub history: History,
    /// The number of failed `check()`s of holds that were in doubt.
    pub doubts: u64,
}

impl AdjustedHistory {
    /// The history with its changes. In a round with a promise of exclusion, a doubt about a hold is excused only if
    /// one of the faults in `speed.doubted_after` explains the doubt. In other rounds every doubt is excused.
    #[must_use]
    pub fn of(history: &History, promise: Promise, speed: &EngineSpeed) -> Self {
        let events = history.events();
        let doubts = doubts(events);
        let count = doubts.len() as u64;
        let mut changes: BTreeMap<usize, What> = BTreeMap::new();
        changes.extend(inner_stops(events).into_iter().map(|index| (index, neutral(&events[index]))));
        let taken_by_foreign = || What::AcqFail { err: "a foreign lock held it".to_owned() };
        changes.extend(taken_by_foreign_lock(events).into_iter().map(|index| (index, taken_by_foreign())));
        changes.extend(min_holds_of_readers(events));
        // After a clock step, or after another server replaced the one that answered before, holds are in doubt until
        // they are renewed.
        let excused = match promise {
            Promise::Exclusion => Doubts::explained(events, speed.doubted_after),
            _ => Doubts { failed_checks: doubts, doubtful_grants: doubtful_grants(events) },
        };
        changes.extend(excused.failed_checks.into_iter().map(|index| (index, neutral(&events[index]))));
        changes.extend(with_unknown_grants(events, &excused.doubtful_grants));
        changes.extend(lost_votes::changes(events, speed.votes_lost_by));
        changes.extend(start_up::changes(events, speed.lost_by, speed.lock_delay));
        if speed.looks_lock {
            changes.extend(shows::changes(events));
        }
        let events = events.iter().enumerate().map(|(index, event)| match changes.remove(&index) {
            Some(what) => Event { what, ..event.clone() },
            None => event.clone(),
        });
        Self { history: History::from_events(events.collect()), doubts: count }
    }
}

/// An event without a meaning for the checker, which replaces `event`.
pub(crate) fn neutral(event: &Event) -> What {
    match event.attempt {
        0 => What::Probe { phase: Phase::Running, found: BTreeMap::new() },
        _ => What::RenewInv,
    }
}

/// The indices of failed `check()`s after which a later event shows that the hold was valid, lost or released.
fn doubts(events: &[Event]) -> BTreeSet<usize> {
    let mut failed_checks: BTreeMap<AttemptId, Vec<usize>> = BTreeMap::new();
    let mut doubts = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::Check { valid: false, .. } => failed_checks.entry(event.attempt).or_default().push(index),
            What::Check { valid: true, .. } | What::Lost { .. } | What::RelInv { .. } => {
                doubts.extend(failed_checks.remove(&event.attempt).unwrap_or_default());
            }
            _ => {}
        }
    }
    doubts
}

/// The attempts whose holds were in doubt at the grant.
fn doubtful_grants(events: &[Event]) -> BTreeSet<AttemptId> {
    let doubtful_grants = events.iter().filter_map(|event| match event.what {
        What::AcqOk { deadline: Some(deadline), .. } if deadline < event.t => Some(event.attempt),
        _ => None,
    });
    doubtful_grants.collect()
}

/// Changes the events of these attempts, so that the checker does not know whether they were granted.
fn with_unknown_grants(events: &[Event], attempts: &BTreeSet<AttemptId>) -> BTreeMap<usize, What> {
    let (mut granted, mut changed) = (BTreeSet::new(), BTreeMap::new());
    for (index, event) in events.iter().enumerate().filter(|(_, event)| attempts.contains(&event.attempt)) {
        if matches!(event.what, What::AcqOk { .. }) && granted.insert(event.attempt) {
            changed.insert(index, What::AcqUnknown { err: "in doubt".to_owned() });
        } else if granted.contains(&event.attempt) && !is_of_memo(&event.what) {
            changed.insert(index, neutral(event));
        }
    }
    changed
}

/// Whether the event is about a value or a result, which others may see although the grant is not known.
const fn is_of_memo(what: &What) -> bool {
    matches!(what, What::PublishInv { .. } | What::PublishOk { .. } | What::StoreInv { .. } | What::NotStored)
}

/// The indices of the inner stops of a process that is stopped already, and of the ends of these inner stops. The
/// checker would take the end of an inner stop for the end of the outer one.
fn inner_stops(events: &[Event]) -> BTreeSet<usize> {
    let mut depths: BTreeMap<u32, u32> = BTreeMap::new();
    let mut inner = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::Stop { victim } => {
                let depth = depths.entry(victim).or_default();
                *depth += 1;
                if *depth > 1 {
                    inner.insert(index);
                }
            }
            What::Cont { victim } => {
                let depth = depths.entry(victim).or_default();
                *depth = depth.saturating_sub(1);
                if *depth > 0 {
                    inner.insert(index);
                }
            }
            _ => {}
        }
    }
    inner
}

/// Changes the releases of readers with a minimum hold time: it is not certain that the name stays taken for any time
/// after the release (`sure` is 0). Several guards of one process may share the hold of a reader, and the hold ends
/// with the last of these guards or with the process.
fn min_holds_of_readers(events: &[Event]) -> BTreeMap<usize, What> {
    let (mut readers, mut changed) = (BTreeSet::new(), BTreeMap::new());
    for (index, event) in events.iter().enumerate() {
        match event.what {
            What::AcqInv { mode, .. } if mode.0 == Mode::Shared => drop(readers.insert(event.attempt)),
            What::RelInv { min_hold: Some(min_hold), .. } if readers.contains(&event.attempt) => {
                changed.insert(index, What::RelInv { min_hold: Some(min_hold), sure: Some(0) });
            }
            _ => {}
        }
    }
    changed
}

/// The indices of answers "taken" to requests during which a foreign program may have held the lock. No history records
/// the holds of the foreign program.
fn taken_by_foreign_lock(events: &[Event]) -> BTreeSet<usize> {
    let (mut foreign_since, mut called_at, mut changed) = (None, BTreeMap::new(), BTreeSet::new());
    // The time of the last release by the foreign program.
    let mut foreign_until = 0;
    for (index, event) in events.iter().enumerate() {
        match &event.what {
            What::NemesisBegin { kind } if FOREIGN_LOCKS.contains(&kind.as_str()) => {
                foreign_since = Some(event.t)
            }
            What::NemesisEnd { kind } if FOREIGN_LOCKS.contains(&kind.as_str()) => {
                (foreign_since, foreign_until) = (None, event.t)
            }
            What::AcqInv { .. } => drop(called_at.insert(event.attempt, event.t)),
            What::AcqTaken
                if foreign_since.is_some()
                    || called_at.get(&event.attempt).is_some_and(|begin| *begin < foreign_until) =>
            {
                changed.insert(index);
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seq: u64, valid: bool) -> Event {
        let (lock, what) = ("m1".to_owned(), What::Check { valid, deadline: None });
        Event { run: 1, proc: 1, seq, t: seq, task: 1, lock, attempt: 7, what }
    }

    /// After a fail-over every hold is in doubt until the new master has renewed it.
    #[test]
    fn a_moment_of_doubt_is_not_reported_as_a_loss() {
        let history = History::from_events(vec![check(1, true), check(2, false), check(3, true)]);
        for (promise, left) in [(Promise::Exclusion, 1), (Promise::Fence, 0), (Promise::Doubt, 0)] {
            let adjusted_history = AdjustedHistory::of(&history, promise, &EngineSpeed::of("file"));
            let denies = |event: &&Event| matches!(event.what, What::Check { valid: false, .. });
            assert_eq!(adjusted_history.history.events().iter().filter(denies).count(), left, "{promise:?}");
            assert_eq!(adjusted_history.doubts, 1);
        }
    }
}

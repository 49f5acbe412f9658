//! Finds the holds that were in doubt for a moment although exclusion is promised, and decides whether a fault explains
//! the doubt.
//!
//! A client of a restarted server cannot know whether the server still has its data, so all holds of the client are in
//! doubt until that server has renewed them (R3). One restart therefore explains one moment of doubt in each process,
//! the same moment for all its holds. Any other hold that is reported as not valid and later as valid is a violation.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use leasehold_testkit::history::{AttemptId, Event, What};

/// The doubts that faults explain.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// The indices of the events in which `check()` failed.
    pub(crate) denials: BTreeSet<usize>,
    /// The attempts whose hold was in doubt at the grant.
    pub(crate) arrivals: BTreeSet<AttemptId>,
}

impl Doubts {
    /// The doubts that faults of these `kinds` explain.
    pub(crate) fn explained(events: &[Event], kinds: &[&str]) -> Self {
        let begins = events.iter().filter_map(|event| match &event.what {
            What::NemesisBegin { kind } if kinds.contains(&kind.as_str()) => Some(event.t),
            _ => None,
        });
        let begins: Vec<u64> = begins.collect();
        let mut explained = Self::default();
        // The previous doubt of each process: it began between these two times.
        let mut before: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for sight in sights(events) {
            let last = before.get(&sight.proc);
            let same = last.is_some_and(|(_, seen)| sight.clear <= *seen);
            let since = last.map_or(0, |(clear, _)| *clear);
            let has_reason = begins.iter().any(|begin| (since + 1..=sight.seen).contains(begin));
            if !same && !has_reason {
                continue;
            }
            if !same {
                before.insert(sight.proc, (sight.clear, sight.seen));
            }
            match sight.of {
                Of::Arrival(attempt) => drop(explained.arrivals.insert(attempt)),
                Of::Denials(places) => explained.denials.extend(places),
            }
        }
        explained
    }
}

/// One doubt about a hold. It began between `clear` and `seen`.
struct Sight {
    proc: u32,
    /// The last time without a doubt.
    clear: u64,
    /// The first time with the doubt.
    seen: u64,
    of: Of,
}

enum Of {
    Arrival(AttemptId),
    Denials(Vec<usize>),
}

/// The state of a hold so far.
struct Known {
    /// The last time without a doubt.
    clear: u64,
    /// The latest reported deadline.
    deadline: Option<u64>,
    open: Option<Open>,
}

/// `check()` fails.
struct Open {
    proc: u32,
    clear: u64,
    seen: u64,
    /// The check failed before the deadline, so the lease had not ended.
    early: bool,
    places: Vec<usize>,
}

impl Known {
    fn report(&mut self, deadline: Option<u64>) {
        self.deadline = self.deadline.max(deadline);
    }

    fn deny(&mut self, at: usize, event: &Event, read: Option<u64>) {
        let Some(deadline) = self.deadline else { return };
        // The check found no time left, so its deadline is the time of the reading. A later deadline shows a renewal in
        // between.
        let read = read.unwrap_or(event.t).max(event.t);
        let early = read < deadline;
        let seen = if early { read } else { event.t };
        let new = || Open { proc: event.proc, clear: self.clear, seen, early, places: Vec::new() };
        self.open.get_or_insert_with(new).places.push(at);
    }

    /// Ends the doubt: the hold was found to be `valid`, or its user asks no more.
    fn close(&mut self, valid: bool) -> Option<Sight> {
        let Open { proc, clear, seen, places, .. } = self.open.take().filter(|open| open.early || valid)?;
        Some(Sight { proc, clear, seen, of: Of::Denials(places) })
    }
}

/// All doubts in the order of `seen`.
fn sights(events: &[Event]) -> Vec<Sight> {
    let (mut all, mut sights): (BTreeMap<AttemptId, Known>, Vec<Sight>) = Default::default();
    for (at, event) in events.iter().enumerate() {
        if matches!(event.what, What::AcqInv { .. }) {
            all.insert(event.attempt, Known { clear: event.t, deadline: None, open: None });
            continue;
        }
        let Some(known) = all.get_mut(&event.attempt) else { continue };
        match event.what {
            What::AcqOk { deadline, .. } => match deadline.map(|deadline| deadline.cmp(&event.t)) {
                Some(Ordering::Less) => {
                    let of = Of::Arrival(event.attempt);
                    sights.push(Sight { proc: event.proc, clear: known.clear, seen: event.t, of });
                    all.remove(&event.attempt);
                }
                _ => known.report(deadline),
            },
            What::RenewOk { deadline, .. } => known.report(Some(deadline)),
            What::Check { valid: true, deadline } => {
                sights.extend(known.close(true));
                known.clear = event.t;
                known.report(deadline);
            }
            What::Check { valid: false, deadline } => known.deny(at, event, deadline),
            What::Lost { .. } | What::RelInv { .. } => {
                sights.extend(known.close(false));
                all.remove(&event.attempt);
            }
            _ => {}
        }
    }
    // The open doubts of killed processes.
    sights.extend(all.values_mut().filter_map(|known| known.close(false)));
    sights.sort_by_key(|sight| sight.seen);
    sights
}

#[cfg(test)]
#[path = "doubts_tests.rs"]
mod tests;

//! Finds the holds that were in doubt for a moment although exclusion is promised, and decides whether a fault explains
//! the doubt.
//!
//! A client of a restarted server cannot know whether the server still has the data that it acknowledged. So all holds
//! of the client are in doubt until the restarted server has renewed them (R3). Therefore one restart explains one
//! doubt in each process; this doubt begins at the same moment for all holds of the process. Any other hold that is
//! reported as not valid and later as valid is a violation.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use leasehold_testkit::history::{AttemptId, Event, What};

/// The doubts that faults explain.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// The indices of the events in which `check()` failed.
    pub(crate) failed_checks: BTreeSet<usize>,
    /// The attempts whose hold was in doubt at the grant.
    pub(crate) doubtful_grants: BTreeSet<AttemptId>,
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
        // The previous explained doubt of each process, as two times: the last time before that doubt at which the hold
        // was known to be valid, and the first time at which the hold was in doubt.
        let mut previous_doubts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for doubt in doubts_in(events) {
            let last = previous_doubts.get(&doubt.proc);
            let is_same = last.is_some_and(|(_, first_doubt)| doubt.last_valid <= *first_doubt);
            let since = last.map_or(0, |(last_valid, _)| *last_valid);
            let has_reason = begins.iter().any(|begin| (since + 1..=doubt.first_doubt).contains(begin));
            if !is_same && !has_reason {
                continue;
            }
            if !is_same {
                previous_doubts.insert(doubt.proc, (doubt.last_valid, doubt.first_doubt));
            }
            match doubt.evidence {
                Evidence::Grant(attempt) => drop(explained.doubtful_grants.insert(attempt)),
                Evidence::FailedChecks(indices) => explained.failed_checks.extend(indices),
            }
        }
        explained
    }
}

/// One doubt about a hold. It began between `last_valid` and `first_doubt`.
struct Doubt {
    proc: u32,
    /// The last time at which the hold was known to be valid.
    last_valid: u64,
    /// The first time at which the hold was in doubt.
    first_doubt: u64,
    evidence: Evidence,
}

/// The evidence of a doubt.
enum Evidence {
    /// The hold was in doubt when it was granted.
    Grant(AttemptId),
    /// The indices of the events in which `check()` failed.
    FailedChecks(Vec<usize>),
}

/// The state of a hold so far.
struct HoldState {
    /// The last time at which the hold was known to be valid.
    last_valid: u64,
    /// The latest reported deadline.
    deadline: Option<u64>,
    /// The doubt that has not ended yet.
    open: Option<OpenDoubt>,
}

/// A doubt that has not ended yet: `check()` fails.
struct OpenDoubt {
    proc: u32,
    last_valid: u64,
    first_doubt: u64,
    /// Whether the first check failed before the deadline. Then the failure is a doubt and not the end of the lease.
    is_early: bool,
    /// The indices of the failed checks.
    indices: Vec<usize>,
}

impl HoldState {
    /// Records a reported deadline.
    fn report(&mut self, deadline: Option<u64>) {
        self.deadline = self.deadline.max(deadline);
    }

    /// Records a failed `check()`. `read` is the deadline that the check reported.
    fn deny(&mut self, index: usize, event: &Event, read: Option<u64>) {
        let Some(deadline) = self.deadline else { return };
        // The hold of a failed check has no time left, so the deadline that the check reports is the time at which the
        // check read it. That time may be later than the time of the event. `self.deadline` is the deadline that was
        // known before the check.
        let read = read.unwrap_or(event.t).max(event.t);
        let is_early = read < deadline;
        let first_doubt = if is_early { read } else { event.t };
        let new = || OpenDoubt {
            proc: event.proc,
            last_valid: self.last_valid,
            first_doubt,
            is_early,
            indices: Vec::new(),
        };
        self.open.get_or_insert_with(new).indices.push(index);
    }

    /// Ends the open doubt: a check found the hold `valid`, or there are no more checks. Returns the doubt; returns
    /// `None` if there was none, or if the hold had merely expired.
    fn close(&mut self, valid: bool) -> Option<Doubt> {
        let OpenDoubt { proc, last_valid, first_doubt, indices, .. } =
            self.open.take().filter(|open| open.is_early || valid)?;
        Some(Doubt { proc, last_valid, first_doubt, evidence: Evidence::FailedChecks(indices) })
    }
}

/// All doubts about holds, in the order in which the doubts began.
fn doubts_in(events: &[Event]) -> Vec<Doubt> {
    let (mut holds, mut doubts_in): (BTreeMap<AttemptId, HoldState>, Vec<Doubt>) = Default::default();
    for (index, event) in events.iter().enumerate() {
        if matches!(event.what, What::AcqInv { .. }) {
            holds.insert(event.attempt, HoldState { last_valid: event.t, deadline: None, open: None });
            continue;
        }
        let Some(hold) = holds.get_mut(&event.attempt) else { continue };
        match event.what {
            What::AcqOk { deadline, .. } => match deadline.map(|deadline| deadline.cmp(&event.t)) {
                Some(Ordering::Less) => {
                    let evidence = Evidence::Grant(event.attempt);
                    doubts_in.push(Doubt {
                        proc: event.proc,
                        last_valid: hold.last_valid,
                        first_doubt: event.t,
                        evidence,
                    });
                    holds.remove(&event.attempt);
                }
                _ => hold.report(deadline),
            },
            What::RenewOk { deadline, .. } => hold.report(Some(deadline)),
            What::Check { valid: true, deadline } => {
                doubts_in.extend(hold.close(true));
                hold.last_valid = event.t;
                hold.report(deadline);
            }
            What::Check { valid: false, deadline } => hold.deny(index, event, deadline),
            What::Lost { .. } | What::RelInv { .. } => {
                doubts_in.extend(hold.close(false));
                holds.remove(&event.attempt);
            }
            _ => {}
        }
    }
    // These are the doubts that had no end in the history, because the process was killed.
    doubts_in.extend(holds.values_mut().filter_map(|hold| hold.close(false)));
    doubts_in.sort_by_key(|doubt| doubt.first_doubt);
    doubts_in
}

#[cfg(test)]
#[path = "doubts_tests.rs"]
mod tests;

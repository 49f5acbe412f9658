//! The history of one attempt, built from its events.

use std::{fmt, ops::Range};

use leasehold_core::Mode;

use crate::history::AttemptId;

/// One attempt, from its call to the answer of its release. Times are nanoseconds; `event` fields are indices into the
/// history.
#[derive(Debug)]
pub(super) struct AttemptHistory<'h> {
    pub(super) id: AttemptId,
    pub(super) lock: &'h str,
    pub(super) proc: u32,
    pub(super) mode: Mode,
    pub(super) invoked: u64,
    pub(super) limit: Option<u64>,
    pub(super) within: Option<AttemptId>,
    pub(super) retries: bool,
    pub(super) queued: Option<u64>,
    pub(super) grant: Option<Granted<'h>>,
    /// When and how it ended without a grant.
    pub(super) failure: Option<(u64, Failure)>,
    pub(super) renewals: Vec<Renewal>,
    pub(super) renewing: Renewing,
    pub(super) checks: Vec<Checked>,
    pub(super) writes: Vec<Write<'h>>,
    pub(super) lost: Option<u64>,
    pub(super) release: Option<ReleaseCall>,
    pub(super) answer: Option<(u64, Outcome)>,
    /// When its process was killed.
    pub(super) crashed: Option<u64>,
    pub(super) events: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Granted<'h> {
    pub(super) at: u64,
    pub(super) token: u64,
    pub(super) lineage: &'h str,
    pub(super) deadline: Option<u64>,
    pub(super) ttl: Option<u64>,
    pub(super) asked: Option<u64>,
    pub(super) watched: bool,
    pub(super) fixed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub(super) at: u64,
    pub(super) deadline: u64,
    pub(super) ttl: Option<u64>,
    pub(super) asked: Option<u64>,
    pub(super) event: usize,
}

/// Renewals in flight. If there are several, it is unknown which of them an answer belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewing {
    count: usize,
    asked: Option<u64>,
}

impl Renewing {
    pub(super) fn ask(&mut self, t: u64) {
        self.count += 1;
        self.asked = Some(t).filter(|_| self.count == 1);
    }

    /// When the answered renewal left, if that is known.
    pub(super) fn answer(&mut self) -> Option<u64> {
        self.count = self.count.saturating_sub(1);
        self.asked.take()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    pub(super) at: u64,
    pub(super) valid: bool,
    pub(super) deadline: Option<u64>,
    pub(super) event: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Write<'h> {
    pub(super) to: &'h str,
    pub(super) token: u64,
    pub(super) element: u64,
    pub(super) sent: u64,
    pub(super) event: usize,
    /// When and how the resource answered, with the index of that event.
    pub(super) answer: Option<(u64, Acceptance, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    Acknowledged,
    Fenced,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseCall {
    pub(super) at: u64,
    pub(super) min_hold: Option<u64>,
    /// The part of the minimum hold time that is certain.
    pub(super) min_hold_certain: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Taken,
    Definite,
    Unknown,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Freed,
    NotHeld,
    Unknown,
}

impl AttemptHistory<'_> {
    /// The latest deadline acknowledged up to `t`. `None`: not granted, or the hold never lapses.
    pub(super) fn deadline_at(&self, t: u64) -> Option<u64> {
        let first = self.grant?.deadline?;
        let renewed = self.renewals.partition_point(|renewal| renewal.at <= t).checked_sub(1);
        Some(renewed.map_or(first, |last| self.renewals[last].deadline.max(first)))
    }

    /// The latest deadline that the user got. `None`: not granted, or the hold never lapses.
    pub(super) fn deadline(&self) -> Option<u64> {
        let first = self.grant?.deadline?;
        let renewed = self.renewals.iter().map(|renewal| renewal.deadline);
        let read = self.checks.iter().filter(|check| check.valid).filter_map(|check| check.deadline);
        Some(renewed.chain(read).fold(first, u64::max))
    }

    /// The active hold: from the grant to the release, loss, crash or deadline. Empty if the answer came after the
    /// deadline. `None`: never granted.
    pub(super) fn active_hold(&self) -> Option<Range<u64>> {
        let grant = self.grant?;
        let ends = [self.release.map(|release| release.at), self.lost, self.crashed, self.deadline()];
        let end = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
        Some(grant.at..end.max(grant.at))
    }

    /// When the acquire returned, with any result.
    pub(super) fn returned(&self) -> Option<u64> {
        self.grant.map(|grant| grant.at).or(self.failure.map(|(at, _)| at))
    }

    /// When the loss was reported, if the user did not release before the lease ended. In this case the end of the hold
    /// notified no waiter.
    pub(super) fn lost_without_release(&self) -> Option<u64> {
        let (lost, deadline) = (self.lost?, self.deadline()?);
        let outlasted_lease = self.release.is_none_or(|release| release.at >= deadline);
        let unanswered = self.answer.is_none_or(|(_, outcome)| outcome == Outcome::Unknown);
        (outlasted_lease && unanswered).then_some(lost)
    }

    /// Whether it never joins the queue.
    pub(super) fn is_try(&self) -> bool {
        self.limit == Some(0)
    }

    /// Whether it never joins the queue and makes a single claim.
    pub(super) fn tries_once(&self) -> bool {
        self.is_try() && !self.retries
    }

    /// The longest lease that it is known to have had. `None`: never granted, or the hold never lapses.
    pub(super) fn longest_ttl(&self) -> Option<u64> {
        let first = self.grant?.ttl?;
        Some(self.renewals.iter().filter_map(|renewal| renewal.ttl).fold(first, u64::max))
    }
}

/// For messages.
impl fmt::Display for AttemptHistory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of process {}", self.mode, self.proc)?;
        if let Some(grant) = self.grant {
            write!(f, " with token {}", grant.token)?;
        }
        Ok(())
    }
}

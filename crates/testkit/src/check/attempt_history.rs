//! The history of one attempt, built from its events.

use std::{fmt, ops::Range};

use leasehold_core::Mode;

use crate::history::AttemptId;

/// One attempt, from the call of its acquire to the answer of its release. Times are nanoseconds; `event` fields are
/// indices into the history.
#[derive(Debug)]
pub(super) struct AttemptHistory<'h> {
    pub(super) id: AttemptId,
    pub(super) lock: &'h str,
    /// The process that made the attempt.
    pub(super) proc: u32,
    pub(super) mode: Mode,
    /// When the acquire was called.
    pub(super) invoked: u64,
    /// The longest wait. 0: the attempt does not wait. `None`: there is no limit.
    pub(super) limit: Option<u64>,
    /// The attempt whose hold this re-entrant attempt enters again. `None`: this attempt is not re-entrant.
    pub(super) outer_attempt: Option<AttemptId>,
    /// Whether the attempt can make several claims, one after the other.
    pub(super) retries: bool,
    /// How the attempt is a part of a larger request. `None`: it is a request of its own.
    pub(super) part: Option<Part>,
    /// When the claim was first seen in the queue.
    pub(super) queued: Option<u64>,
    pub(super) grant: Option<Granted<'h>>,
    /// When and how the attempt ended without a grant.
    pub(super) failure: Option<(u64, Failure)>,
    pub(super) renewals: Vec<Renewal>,
    /// The renewals in flight.
    pub(super) renewing: Renewing,
    pub(super) checks: Vec<CheckCall>,
    pub(super) writes: Vec<Write<'h>>,
    /// The values that it published as the leader of an election, in the order of their numbers.
    pub(super) values: Vec<Published>,
    /// The result that it was about to store.
    pub(super) result: Option<Storing>,
    /// The stored result that it returned: when, of which attempt, and the index of the event.
    pub(super) replay: Option<(u64, AttemptId, usize)>,
    /// When the loss of the hold was reported.
    pub(super) lost: Option<u64>,
    /// The call of the release.
    pub(super) release: Option<ReleaseCall>,
    /// When and how the release was answered.
    pub(super) answer: Option<(u64, Outcome)>,
    /// When the process of the attempt was killed.
    pub(super) killed_at: Option<u64>,
    /// All events of the attempt.
    pub(super) events: Vec<usize>,
}

/// A part of a larger request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It may hold the lock at times that the history does not show.
    Unknown,
    /// It makes a single claim that is never queued. If the claim is not answered "taken", it may be granted for a
    /// moment although the larger request fails.
    Single,
}

/// The grant of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted<'h> {
    /// When the acquire returned.
    pub(super) at: u64,
    pub(super) token: u64,
    pub(super) lineage: &'h str,
    /// The first deadline; `None`: the hold never lapses.
    pub(super) deadline: Option<u64>,
    /// The lease time that was granted. `None`: the hold never lapses.
    pub(super) ttl: Option<u64>,
    /// When the request that got the grant was sent, if that is known.
    pub(super) sent_at: Option<u64>,
    /// Whether a task of the client waits for the report of a loss and records it.
    pub(super) watched: bool,
    /// Whether the lease is never renewed.
    pub(super) fixed: bool,
}

/// A renewal that was acknowledged at `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub(super) at: u64,
    pub(super) deadline: u64,
    pub(super) ttl: Option<u64>,
    /// When the renewal was sent, if that is known.
    pub(super) sent_at: Option<u64>,
    pub(super) event: usize,
}

/// Renewals in flight. If there are several, it is unknown which of them an answer belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewing {
    count: usize,
    /// When the only renewal in flight was sent. `None`: there is none, or the answers of several may be confused.
    sent_at: Option<u64>,
}

impl Renewing {
    /// Records that a renewal was sent at `t`.
    pub(super) fn record_request(&mut self, t: u64) {
        self.count += 1;
        self.sent_at = Some(t).filter(|_| self.count == 1);
    }

    /// Records an answer. Returns the time at which the answered renewal was sent, if that is known.
    pub(super) fn record_answer(&mut self) -> Option<u64> {
        self.count = self.count.saturating_sub(1);
        self.sent_at.take()
    }
}

/// A call of `check` at `at`, with its result and the deadline that was read after the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckCall {
    pub(super) at: u64,
    pub(super) valid: bool,
    pub(super) deadline: Option<u64>,
    pub(super) event: usize,
}

/// A write of `element` to the resource `to`.
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

/// A value of a leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    pub(super) number: u64,
    /// When the write was sent.
    pub(super) sent: u64,
    /// When the write was acknowledged, with the index of that event.
    pub(super) acknowledged: Option<(u64, usize)>,
}

/// A result that a run was about to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storing {
    /// When the write was sent.
    pub(super) sent: u64,
    /// For how long the result is kept.
    pub(super) keep: u64,
    /// Whether the result is certainly not stored.
    pub(super) failed: bool,
    /// The index of the event that announced the write.
    pub(super) event: usize,
}

/// How the resource answered a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    Acknowledged,
    Fenced,
}

/// The call of a release at `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseCall {
    pub(super) at: u64,
    /// The longest possible time from this call to the end of the minimum hold.
    pub(super) min_hold: Option<u64>,
    /// The shortest possible time from this call to the end of the minimum hold.
    pub(super) min_hold_certain: u64,
}

/// How an attempt ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Taken,
    Definite,
    Unknown,
    Cancelled,
}

/// How a release was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Freed,
    NotHeld,
    Unknown,
}

impl AttemptHistory<'_> {
    /// The latest deadline acknowledged up to `t`. `None`: the attempt was never granted, or the hold never lapses.
    pub(super) fn deadline_at(&self, t: u64) -> Option<u64> {
        let first = self.grant?.deadline?;
        let renewed = self.renewals.partition_point(|renewal| renewal.at <= t).checked_sub(1);
        Some(renewed.map_or(first, |last| self.renewals[last].deadline.max(first)))
    }

    /// The latest deadline that was acknowledged at any time. `None`: the attempt was never granted, or the hold never
    /// lapses.
    pub(super) fn deadline(&self) -> Option<u64> {
        let first = self.grant?.deadline?;
        let renewed = self.renewals.iter().map(|renewal| renewal.deadline);
        let read = self.checks.iter().filter(|check| check.valid).filter_map(|check| check.deadline);
        Some(renewed.chain(read).fold(first, u64::max))
    }

    /// The active hold: from the grant to the release, loss, crash or deadline, whichever comes first. Empty if the
    /// acquire returned after the deadline. `None`: the attempt was never granted.
    pub(super) fn active_hold(&self) -> Option<Range<u64>> {
        let grant = self.grant?;
        let ends = [self.release.map(|release| release.at), self.lost, self.killed_at, self.deadline()];
        let end = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
        Some(grant.at..end.max(grant.at))
    }

    /// When the acquire returned, with any result.
    pub(super) fn returned(&self) -> Option<u64> {
        self.grant.map(|grant| grant.at).or(self.failure.map(|(at, _)| at))
    }

    /// When the loss was reported, if the user did not release the hold before its lease ended; otherwise `None`. The
    /// end of a lease notifies no waiter.
    pub(super) fn lost_without_release(&self) -> Option<u64> {
        let (lost, deadline) = (self.lost?, self.deadline()?);
        let outlasted_lease = self.release.is_none_or(|release| release.at >= deadline);
        let unanswered = self.answer.is_none_or(|(_, outcome)| outcome == Outcome::Unknown);
        (outlasted_lease && unanswered).then_some(lost)
    }

    /// Whether the attempt never joins the queue.
    pub(super) fn is_try(&self) -> bool {
        self.limit == Some(0)
    }

    /// Whether the attempt is a part of a larger request.
    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// Whether the attempt may hold the lock at times that the history does not show, until its return.
    pub(super) fn may_hold_unseen(&self) -> bool {
        self.part == Some(Part::Unknown)
    }

    /// Whether the attempt leaves nothing if it is answered "taken": it is a try that makes a single claim.
    pub(super) fn leaves_nothing_if_taken(&self) -> bool {
        self.is_try() && !self.may_hold_unseen()
    }

    /// Whether the attempt never joins the queue, and makes a single claim for a larger request.
    pub(super) fn is_single_part_of_try(&self) -> bool {
        self.is_try() && self.part == Some(Part::Single)
    }

    /// Whether the attempt never joins the queue and makes a single claim, soon after its call. The claims of a larger
    /// request may follow each other.
    pub(super) fn tries_once(&self) -> bool {
        self.is_try() && !self.retries && !self.is_part()
    }

    /// The longest lease that the hold is known to have had. `None`: the attempt was never granted, or the hold never
    /// lapses.
    pub(super) fn longest_ttl(&self) -> Option<u64> {
        let first = self.grant?.ttl?;
        Some(self.renewals.iter().filter_map(|renewal| renewal.ttl).fold(first, u64::max))
    }
}

/// The attempt as messages name it.
impl fmt::Display for AttemptHistory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of process {}", self.mode, self.proc)?;
        if let Some(grant) = self.grant {
            write!(f, " with token {}", grant.token)?;
        }
        Ok(())
    }
}

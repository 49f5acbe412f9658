//! One attempt, from the call of the acquire to the release. The types enforce the stamping rule.

use leasehold_core::{Mode, Token};

use super::{AttemptId, RecordedMode, Recorder, What, now_nanos};

/// An acquire that was called. If it is dropped without an answer, the history has no end of the attempt, as after the
/// kill of its process.
#[derive(Debug)]
#[must_use = "record how the acquire ended"]
pub struct Attempt<'a> {
    recorder: &'a Recorder,
    task: u32,
    lock: String,
    id: AttemptId,
    /// When the acquire was called.
    invoked: u64,
    /// When the acquire returned a guard; 0: not yet.
    granted: u64,
}

/// What the guard reported when the acquire returned.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The token.
    pub token: Token,
    /// The lease time that was granted. `None`: the hold never lapses.
    pub ttl_nanos: Option<u64>,
    /// Whether a task awaits `lost()` and will record the loss.
    pub watched: bool,
    /// Whether the lease is not renewed.
    pub fixed: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn begin(
        recorder: &'a Recorder,
        task: u32,
        lock: &str,
        mode: Mode,
        limit: Option<u64>,
        within: Option<AttemptId>,
    ) -> Self {
        let (id, invoked) = (recorder.next_attempt(), now_nanos());
        let attempt = Self { recorder, task, lock: lock.into(), id, invoked, granted: 0 };
        attempt.record(What::AcqInv { mode: RecordedMode(mode), limit, within, retries: false });
        attempt
    }

    /// The id of the attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.id
    }

    /// Records that the acquire is a part of a larger request. Call it before that request begins.
    pub fn part(&self) {
        self.record(What::Part { single: false });
    }

    /// Records that the acquire is a part of a larger request that does not wait. The part makes a single claim, which
    /// is never queued. Call it before that request begins.
    pub fn part_of_try(&self) {
        self.record(What::Part { single: true });
    }

    /// Records that this candidate is about to publish the value with the number 0.
    pub fn publishing(&self) {
        self.record(What::PublishInv { number: 0 });
    }

    /// Records that a run of work that is done one time returned the stored result of the run `of`.
    pub fn replayed(self, of: AttemptId) {
        self.record(What::Replay { of });
        self.failed("replayed");
    }

    /// Records that the claim was seen in the queue.
    pub fn queued(&self) {
        self.record(What::Enq);
    }

    /// Records that the acquire returned a guard. `remaining` reads from the guard for how many nanoseconds the hold is
    /// still valid (`None`: it never lapses).
    pub fn granted(mut self, granted: Granted, remaining: impl FnOnce() -> Option<u64>) -> ActiveHold<'a> {
        let before = now_nanos();
        // A hold that has lapsed already began and ended at an unknown time since its request.
        let ends = |remaining| if remaining == 0 { self.invoked } else { before.saturating_add(remaining) };
        let deadline = remaining().map(ends);
        let what = What::AcqOk {
            token: granted.token.number,
            lineage: granted.token.lineage.to_string(),
            deadline,
            ttl: granted.ttl_nanos,
            asked: None,
            watched: granted.watched,
            fixed: granted.fixed,
        };
        self.granted = now_nanos();
        self.record(what);
        ActiveHold(self)
    }

    /// Records the answer "taken", which came at once or at the end of the time limit of the wait.
    pub fn taken(self) {
        self.record(What::AcqTaken);
    }

    /// Records that the acquire certainly failed, for another reason than "taken".
    pub fn failed(self, err: &str) {
        self.record(What::AcqFail { err: err.into() });
    }

    /// Records that the acquire failed, but that its claim may have been applied on the server.
    pub fn unknown(self, err: &str) {
        self.record(What::AcqUnknown { err: err.into() });
    }

    /// Records that the acquire was cancelled.
    pub fn cancelled(self) {
        self.record(What::Cancel);
    }

    fn record(&self, what: What) {
        self.recorder.record(now_nanos(), self.task, &self.lock, self.id, what);
    }
}

/// A hold that was granted and whose release is not called yet.
#[derive(Debug)]
#[must_use = "record how the hold ended"]
pub struct ActiveHold<'a>(Attempt<'a>);

impl<'a> ActiveHold<'a> {
    /// The id of the attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.0.id
    }

    /// Reads from the guard for how many nanoseconds the hold is still valid, and records a renewal.
    pub fn renewed(&self, remaining: impl FnOnce() -> Option<u64>) {
        if let Some(deadline) = deadline(remaining) {
            self.0.record(What::RenewOk { deadline, ttl: None });
        }
    }

    /// Calls `check` and records its answer with the time before the call and the deadline read after it.
    pub fn check(&self, check: impl FnOnce() -> bool, remaining: impl FnOnce() -> Option<u64>) -> bool {
        let before = now_nanos();
        let valid = check();
        let what = What::Check { valid, deadline: deadline(remaining) };
        self.0.recorder.record(before, self.0.task, &self.0.lock, self.0.id, what);
        valid
    }

    /// Records that a write of `element` is about to be sent to the resource `to` under `token`. The element is unique
    /// in the run.
    pub fn writing(&self, to: &str, token: u64, element: u64) -> PendingWrite<'_> {
        self.0.record(What::WriteInv { to: to.into(), token, element });
        PendingWrite { attempt: &self.0, element }
    }

    /// Records that this leader is about to publish the value with this number, which is larger than those before.
    pub fn publishing(&self, number: u64) {
        self.0.record(What::PublishInv { number });
    }

    /// Records that the engine acknowledged the value with this number.
    pub fn published(&self, number: u64) {
        self.0.record(What::PublishOk { number });
    }

    /// Records that the result of this run is about to be stored with the release, for `keep` nanoseconds.
    pub fn storing(&self, keep: u64) {
        self.0.record(What::StoreInv { keep });
    }

    /// Records that `lost()` resolved.
    pub fn lost(&self, err: &str) {
        self.0.record(What::Lost { err: err.into() });
    }

    /// Records that a release is about to be called. With a minimum hold, the name stays taken until `at_least`
    /// nanoseconds after the grant. The time of the grant is between the call of the acquire and its return.
    pub fn releasing(self, at_least: Option<u64>) -> PendingRelease<'a> {
        let remaining =
            |since: u64| at_least.map(|time| time.saturating_sub(now_nanos().saturating_sub(since)));
        let (min_hold, sure) = (remaining(self.0.granted), remaining(self.0.invoked));
        self.0.record(What::RelInv { min_hold, sure });
        PendingRelease(self.0)
    }
}

/// A write that was sent. If it is dropped without an answer, it is unknown whether it was applied.
#[derive(Debug)]
#[must_use = "record what the resource answered"]
pub struct PendingWrite<'a> {
    attempt: &'a Attempt<'a>,
    element: u64,
}

impl PendingWrite<'_> {
    /// Records that the resource acknowledged the write.
    pub fn acknowledged(self) {
        self.attempt.record(What::WriteOk { element: self.element });
    }

    /// Records that the resource refused the write because of its token.
    pub fn fenced(self) {
        self.attempt.record(What::WriteFenced { element: self.element });
    }
}

/// A release that was called.
#[derive(Debug)]
#[must_use = "record what the release answered"]
pub struct PendingRelease<'a>(Attempt<'a>);

impl PendingRelease<'_> {
    /// Records the answer "freed".
    pub fn freed(self) {
        self.0.record(What::RelOk);
    }

    /// Records that the result of the run is certainly not stored.
    pub fn not_stored(&self) {
        self.0.record(What::NotStored);
    }

    /// Records the answer "was not held".
    pub fn not_held(self) {
        self.0.record(What::RelNotheld);
    }

    /// Records that the outcome is unknown.
    pub fn unknown(self, err: &str) {
        self.0.record(What::RelUnknown { err: err.into() });
    }
}

/// The deadline that `remaining` implies. The clock is read first, so the recorded deadline is never later than the
/// real one.
fn deadline(remaining: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let before = now_nanos();
    remaining().map(|remaining| before.saturating_add(remaining))
}

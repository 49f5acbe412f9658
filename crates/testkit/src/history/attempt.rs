//! One attempt from invocation to release, as types that cannot break the stamping rule.

use leasehold_core::{Mode, Token};

use super::{AttemptId, HowHeld, Recorder, What, now_nanos};

/// An acquire that was called. Dropping it without an answer leaves the attempt open, as a killed process would.
#[derive(Debug)]
#[must_use = "record how the acquire ended"]
pub struct Attempt<'a> {
    recorder: &'a Recorder,
    task: u32,
    lock: String,
    id: AttemptId,
    /// When it was called, and when it was granted.
    invoked: u64,
    granted: u64,
}

/// What a guard told when the acquire returned it.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// The token.
    pub token: Token,
    /// The granted time. `None`: it never lapses.
    pub ttl_nanos: Option<u64>,
    /// Whether somebody awaits `lost()` and will record it.
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
        attempt.record(What::AcqInv { mode: HowHeld(mode), limit, within, retries: false });
        attempt
    }

    /// The id of the attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.id
    }

    /// The claim was seen standing in line.
    pub fn queued(&self) {
        self.record(What::Enq);
    }

    /// The acquire returned a guard; `remaining` reads from it for how many nanoseconds it may be believed still
    /// (`None`: it never lapses).
    pub fn granted(mut self, granted: Granted, remaining: impl FnOnce() -> Option<u64>) -> ActiveHold<'a> {
        let before = now_nanos();
        // What is over on arrival began and ended at some time since it was asked for.
        let ends = |left| if left == 0 { self.invoked } else { before.saturating_add(left) };
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

    /// The acquire answered "taken", at once or when its limit was over.
    pub fn taken(self) {
        self.record(What::AcqTaken);
    }

    /// The acquire certainly failed, for another reason.
    pub fn failed(self, err: &str) {
        self.record(What::AcqFail { err: err.into() });
    }

    /// The acquire failed and may have been applied.
    pub fn unknown(self, err: &str) {
        self.record(What::AcqUnknown { err: err.into() });
    }

    /// The acquire was cancelled.
    pub fn cancelled(self) {
        self.record(What::Cancel);
    }

    fn record(&self, what: What) {
        self.recorder.record(now_nanos(), self.task, &self.lock, self.id, what);
    }
}

/// A hold that is believed.
#[derive(Debug)]
#[must_use = "record how the hold ended"]
pub struct ActiveHold<'a>(Attempt<'a>);

impl<'a> ActiveHold<'a> {
    /// The id of the attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.0.id
    }

    /// Reads from the guard for how many nanoseconds it may be believed still, and records that its lease was renewed.
    pub fn renewed(&self, remaining: impl FnOnce() -> Option<u64>) {
        if let Some(deadline) = deadline(remaining) {
            self.0.record(What::RenewOk { deadline, ttl: None });
        }
    }

    /// Calls `check` and records its answer under the time before the call, with the deadline read right after.
    pub fn check(&self, check: impl FnOnce() -> bool, remaining: impl FnOnce() -> Option<u64>) -> bool {
        let before = now_nanos();
        let valid = check();
        let what = What::Check { valid, deadline: deadline(remaining) };
        self.0.recorder.record(before, self.0.task, &self.0.lock, self.0.id, what);
        valid
    }

    /// A write of `element`, unique in the run, is about to leave to the resource `to` under `token`.
    pub fn writing(&self, to: &str, token: u64, element: u64) -> PendingWrite<'_> {
        self.0.record(What::WriteInv { to: to.into(), token, element });
        PendingWrite { attempt: &self.0, element }
    }

    /// `lost()` resolved.
    pub fn lost(&self, err: &str) {
        self.0.record(What::Lost { err: err.into() });
    }

    /// A release is about to be called; the name is to be kept taken until so many nanoseconds have passed since the grant,
    /// which was between the call of the acquire and its return.
    pub fn releasing(self, at_least: Option<u64>) -> Leaving<'a> {
        let left = |since: u64| at_least.map(|time| time.saturating_sub(now_nanos().saturating_sub(since)));
        let (keep, sure) = (left(self.0.granted), left(self.0.invoked));
        self.0.record(What::RelInv { keep, sure });
        Leaving(self.0)
    }
}

/// A write that was sent. Dropping it without an answer leaves open whether it was applied.
#[derive(Debug)]
#[must_use = "record what the resource answered"]
pub struct PendingWrite<'a> {
    attempt: &'a Attempt<'a>,
    element: u64,
}

impl PendingWrite<'_> {
    /// The resource acknowledged it.
    pub fn acknowledged(self) {
        self.attempt.record(What::WriteOk { element: self.element });
    }

    /// The resource refused it for its token.
    pub fn fenced(self) {
        self.attempt.record(What::WriteFenced { element: self.element });
    }
}

/// A release that was called.
#[derive(Debug)]
#[must_use = "record what the release answered"]
pub struct Leaving<'a>(Attempt<'a>);

impl Leaving<'_> {
    /// It answered: freed.
    pub fn freed(self) {
        self.0.record(What::RelOk);
    }

    /// It answered: was not held any more.
    pub fn not_held(self) {
        self.0.record(What::RelNotheld);
    }

    /// It could not tell.
    pub fn unknown(self, err: &str) {
        self.0.record(What::RelUnknown { err: err.into() });
    }
}

/// The deadline behind `remaining`, never too late: the clock is read first.
fn deadline(remaining: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let before = now_nanos();
    remaining().map(|remaining| before.saturating_add(remaining))
}

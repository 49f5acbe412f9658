//! One recorded event: a line of JSON with stable field names.

use std::collections::BTreeMap;

use leasehold_core::{KnownMode, Mode};
use serde::{Deserialize, Serialize};

/// Identifies one attempt in a run: the number of the process in the upper half, a sequence number in the lower half.
pub type AttemptId = u64;

/// One event. All times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The run of the harness.
    pub run: u64,
    /// The process that recorded it.
    pub proc: u32,
    /// The sequence number within the process.
    pub seq: u64,
    /// The time, by the stamping rule of the [module](super).
    pub t: u64,
    /// The task within the process.
    pub task: u32,
    /// The lock. Empty for events of a process or of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock: String,
    /// The attempt. 0 for events of a process, of a lock or of the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: AttemptId,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(id: &AttemptId) -> bool {
    *id == 0
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum What {
    /// An acquire is about to be called.
    AcqInv {
        /// The mode.
        mode: RecordedMode,
        /// The longest wait. 0: no wait; absent: no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        /// For a re-entrant acquire: the attempt that holds the lock already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<AttemptId>,
        /// The acquire tries more than once, each time with a new claim.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retries: bool,
    },
    /// The acquire is a part of a larger request: of a request for several names, or of a run of work that is done one
    /// time. Until it returns, it may hold the lock at times that the history does not show, and it may have other
    /// reasons to wait than the lock.
    Part {
        /// The part makes a single claim that is never queued, so that it leaves nothing if it is answered "taken".
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        single: bool,
    },
    /// The claim was in the queue at the time of this event or before.
    Enq,
    /// The acquire returned a guard.
    AcqOk {
        /// The token.
        token: u64,
        /// The lineage of the token, in hex.
        lineage: String,
        /// The time until which the guard is valid. Absent: the hold never lapses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
        /// The lease time that was granted. Absent: the hold never lapses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u64>,
        /// When the acknowledged request was sent, if the recorder knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<u64>,
        /// A task awaits `lost()` and will record the loss.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        watched: bool,
        /// The lease is not renewed, so its first deadline is its last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fixed: bool,
    },
    /// The acquire was answered "taken", at once or at the end of the time limit of its wait.
    AcqTaken,
    /// The acquire certainly failed, for another reason than "taken": refused, unreachable, ...
    AcqFail {
        /// The kind of error.
        err: String,
    },
    /// The acquire failed, but its claim may have been applied on the server.
    AcqUnknown {
        /// The kind of error.
        err: String,
    },
    /// A renewal is about to be sent.
    RenewInv,
    /// A renewal was acknowledged. Recorded if the harness sees renewals, or if it reads from the guard that the
    /// deadline is later than before.
    RenewOk {
        /// The time until which the guard is valid after this renewal.
        deadline: u64,
        /// The lease time that was granted, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u64>,
    },
    /// A renewal failed or was not answered.
    RenewFail {
        /// The kind of error.
        err: String,
    },
    /// The guard reported that the hold is lost.
    Lost {
        /// The reason.
        err: String,
    },
    /// `check()` was called at the time of this event, and then returned `valid`.
    Check {
        /// The result.
        valid: bool,
        /// The deadline that the guard reported after the call, if it was read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
    },
    /// A release is about to be called.
    RelInv {
        /// The largest possible remainder of the minimum hold time at this event. Absent: there is no minimum hold.
        #[serde(rename = "keep", default, skip_serializing_if = "Option::is_none")]
        min_hold: Option<u64>,
        /// The smallest possible remainder of the minimum hold time. Absent: it equals the largest possible one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sure: Option<u64>,
    },
    /// The release was answered "freed".
    RelOk,
    /// The release was answered "was not held".
    RelNotheld,
    /// The outcome of the release is unknown.
    RelUnknown {
        /// The kind of error.
        err: String,
    },
    /// The acquire was cancelled: its future was dropped.
    Cancel,
    /// A write under the lock is about to be sent to a resource.
    WriteInv {
        /// The resource.
        to: String,
        /// The token that the write carries.
        token: u64,
        /// The element that it adds, unique in the run.
        element: u64,
    },
    /// The resource acknowledged the write.
    WriteOk {
        /// The element that was added.
        element: u64,
    },
    /// The resource refused the write because of its token.
    WriteFenced {
        /// The element that was not added.
        element: u64,
    },
    /// The contents of a resource, read when all writers have ended.
    Contents {
        /// The resource.
        of: String,
        /// The elements, the oldest first.
        elements: Vec<u64>,
    },
    /// A candidate or leader of an election is about to publish a value. The acquire itself publishes the number 0.
    PublishInv {
        /// The number of the value within the attempt. Later values have larger numbers.
        number: u64,
    },
    /// The engine acknowledged the value of this number.
    PublishOk {
        /// The number of the value.
        number: u64,
    },
    /// An observer of an election got the value and the term of a leader. The time of the event is a time after that.
    Seen {
        /// The number of the observer within its process.
        observer: u64,
        /// A time before the state was read. Absent: the observer follows the election, so the time is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<u64>,
        /// The attempt that published the value. 0: the value is not one of the run.
        leader: AttemptId,
        /// The number of the value within the attempt.
        number: u64,
        /// The term.
        token: u64,
        /// The lineage of the term, in hex.
        lineage: String,
    },
    /// The work of a run is done, and its result is about to be stored in the step that releases the lock.
    StoreInv {
        /// For how long the result is kept, in nanoseconds.
        keep: u64,
    },
    /// The result of the run is certainly not stored.
    NotStored,
    /// The acquire did not hold the lock for work: it returned the stored result of another run. The end of the attempt
    /// is recorded as well.
    Replay {
        /// The attempt whose result it is. 0: the result is not one of the run of the harness.
        of: AttemptId,
    },
    /// A process is about to be killed.
    Crash {
        /// The process.
        victim: u32,
    },
    /// A process is about to be paused, for instance by SIGSTOP.
    Stop {
        /// The process.
        victim: u32,
    },
    /// A paused process runs again.
    Cont {
        /// The process.
        victim: u32,
    },
    /// From this time on, the machine gave no time to a process, or to a part that all processes share. The stall was
    /// measured; it is recorded when it is over.
    Stall {
        /// The end of the stall.
        until: u64,
        /// The process. Absent: a part that all share, such as a server or its disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        victim: Option<u32>,
        /// The resource of the machine that was waited for.
        of: String,
    },
    /// A disturbance of the system begins.
    NemesisBegin {
        /// The kind of disturbance.
        kind: String,
    },
    /// The disturbance is over.
    NemesisEnd {
        /// The kind of disturbance.
        kind: String,
    },
    /// The number of all things that must not be left after the run, by kind: keys, rows, connections, threads, ...
    Probe {
        /// The phase of the run.
        phase: Phase,
        /// The count of each kind.
        found: BTreeMap<String, u64>,
    },
    /// The state of the lock, as an administrator's connection read it. The time of the event is a time before the
    /// request for the state was sent.
    Truth {
        /// A time after the answer arrived.
        until: u64,
        /// The holders.
        holders: Vec<Held>,
        /// The queued attempts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waiters: Vec<AttemptId>,
    },
}

/// A holder, as the server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The attempt. 0 if the server reports only the token, or only that there is a holder.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: AttemptId,
    /// The first token of the grant. The other tokens of its block are for the tasks that share the hold, or to which
    /// the hold is handed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// When the hold expires on the server. Absent: it never lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// When in a run a probe was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the first claim.
    Start,
    /// While claims are made.
    Running,
    /// After the last release, and after everything that lapses has lapsed.
    Rest,
}

/// A [`Mode`] as text in a history: `X`, `S`, `P:count/limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordedMode(pub Mode);

impl From<RecordedMode> for String {
    fn from(RecordedMode(mode): RecordedMode) -> Self {
        match mode.known() {
            KnownMode::Exclusive => "X".into(),
            KnownMode::Shared => "S".into(),
            KnownMode::Permits { count, limit } => format!("P:{count}/{limit}"),
        }
    }
}

impl TryFrom<String> for RecordedMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let permits = || {
            let (count, limit) = text.strip_prefix("P:")?.split_once('/')?;
            Some(Mode::Permits { count: count.parse().ok()?, limit: limit.parse().ok()? })
        };
        match text.as_str() {
            "X" => Ok(Self(Mode::Exclusive)),
            "S" => Ok(Self(Mode::Shared)),
            _ => permits().map(Self).ok_or_else(|| format!("{text:?} is no mode: X, S or P:count/limit")),
        }
    }
}

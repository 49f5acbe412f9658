//! One recorded event: a line of JSON with stable field names.

use std::collections::BTreeMap;

use leasehold_core::Mode;
use serde::{Deserialize, Serialize};

/// Names one attempt to hold a lock, unique in a run: the process in the upper half, a running number in the lower.
pub type AttemptId = u64;

/// One event. All times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which run of the harness.
    pub run: u64,
    /// The process that recorded it.
    pub proc: u32,
    /// Its running number within the process.
    pub seq: u64,
    /// When: see the stamping rule of the [module](super).
    pub t: u64,
    /// The task within the process.
    pub task: u32,
    /// The lock; empty for events of a process or of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock: String,
    /// The attempt; 0 for events of a process, of a lock or of the run.
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

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum What {
    /// An acquire is about to be called.
    AcqInv {
        /// How it is to be held.
        mode: HowHeld,
        /// How long the caller waits at most; 0: not at all; absent: for ever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        /// The attempt it enters again, for re-entrant acquires.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<AttemptId>,
        /// It tries more than once, each time by a claim of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retries: bool,
    },
    /// The claim is known to stand in line since before this moment.
    Enq,
    /// The acquire returned a guard.
    AcqOk {
        /// The token.
        token: u64,
        /// Its lineage, in hex.
        lineage: String,
        /// Until when the guard may be believed; absent: it never lapses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
        /// The granted time; absent: it never lapses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u64>,
        /// When the acknowledged request left, where the recorder knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<u64>,
        /// Somebody awaits `lost()` and will record it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        watched: bool,
        /// The lease is not renewed: its first deadline is its last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fixed: bool,
    },
    /// The acquire answered "taken": at once, or after it had waited for as long as it may.
    AcqTaken,
    /// The acquire certainly failed, for another reason: refused, unreachable, ...
    AcqFail {
        /// The kind of error.
        err: String,
    },
    /// The acquire failed and may have been applied.
    AcqUnknown {
        /// The kind of error.
        err: String,
    },
    /// A renewal is about to leave.
    RenewInv,
    /// A renewal was acknowledged; recorded where the harness sees renewals, or reads a later deadline from the guard.
    RenewOk {
        /// Until when the guard may be believed now.
        deadline: u64,
        /// The granted time, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u64>,
    },
    /// A renewal failed or was not answered.
    RenewFail {
        /// The kind of error.
        err: String,
    },
    /// The guard said that the hold is lost.
    Lost {
        /// Why.
        err: String,
    },
    /// `check()` is about to be called; it then answered `valid`.
    Check {
        /// Its answer.
        valid: bool,
        /// The deadline that the guard told right after, where it was read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<u64>,
    },
    /// A release is about to be called.
    RelInv {
        /// How long the name is to be kept taken at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep: Option<u64>,
        /// And how long at least; absent: as long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sure: Option<u64>,
    },
    /// The release answered: freed.
    RelOk,
    /// The release answered: was not held any more.
    RelNotheld,
    /// The release could not tell.
    RelUnknown {
        /// The kind of error.
        err: String,
    },
    /// The acquire was cancelled: its future was dropped.
    Cancel,
    /// A write under the lock is about to leave.
    WriteInv {
        /// To which resource.
        to: String,
        /// The token it carries.
        token: u64,
        /// What it adds, unique in the run.
        element: u64,
    },
    /// The resource acknowledged the write.
    WriteOk {
        /// What was added.
        element: u64,
    },
    /// The resource refused the write for its token.
    WriteFenced {
        /// What was not added.
        element: u64,
    },
    /// What a resource holds, read when nobody writes any more.
    Contents {
        /// Which resource.
        of: String,
        /// What was added, the oldest first.
        elements: Vec<u64>,
    },
    /// A process is about to be killed.
    Crash {
        /// Which.
        victim: u32,
    },
    /// A process is about to be stopped.
    Stop {
        /// Which.
        victim: u32,
    },
    /// A process was continued.
    Cont {
        /// Which.
        victim: u32,
    },
    /// From this moment on the machine did not serve a process, or anybody: measured, and written down when it was over.
    Stall {
        /// When it served again.
        until: u64,
        /// Which process; absent: something that all share, a server or its disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        victim: Option<u32>,
        /// What was waited for.
        of: String,
    },
    /// A disturbance of the system begins.
    NemesisBegin {
        /// Which.
        kind: String,
    },
    /// It is over.
    NemesisEnd {
        /// Which.
        kind: String,
    },
    /// What there is of everything that must not leak: keys, rows, connections, threads, ... by kind.
    Probe {
        /// When in the run.
        phase: Phase,
        /// How many by kind.
        found: BTreeMap<String, u64>,
    },
    /// Who holds the lock, from an administrator's connection. Stamped before the question left.
    Truth {
        /// When the answer was there.
        until: u64,
        /// The holders.
        holders: Vec<Held>,
        /// The attempts that stand in line.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waiters: Vec<AttemptId>,
    },
}

/// A holder, as the server tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The attempt; 0 where the server does not tell, but the token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: AttemptId,
    /// The first token of the grant, whose further ones go to those who share the hold or are handed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// When it expires on the server; absent: it never lapses.
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
    /// After the last release, and after everything that may lapse has lapsed.
    Rest,
}

/// A [`Mode`] as a history writes it: `X`, `S`, `P:count/limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HowHeld(pub Mode);

impl From<HowHeld> for String {
    fn from(HowHeld(mode): HowHeld) -> Self {
        match mode {
            Mode::Exclusive => "X".into(),
            Mode::Shared => "S".into(),
            Mode::Permits { count, limit } => format!("P:{count}/{limit}"),
        }
    }
}

impl TryFrom<String> for HowHeld {
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

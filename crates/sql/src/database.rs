//! What a database does for the engine. All of it is in here; each dialect says it in its own words.

use std::{fmt, time::Duration};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use leasehold_core::Level;
use leasehold_core::{BoxFuture, Claim, EngineError, Fault, Guarantee, Hold, Lineage, Name, Release};

use crate::{
    row::ClientId,
    slots::Slots,
    step::{Changes, Outgoing, Snapshot, Verb},
};

/// A note of the guarantee of every server: its own clock ends the leases.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const CLOCK: &str =
    "set the clock of the database forward and leases end early: holders are told at their next renewal";

/// An answer, and the time of the database when it was given, in microseconds.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    pub(crate) now: i64,
    pub(crate) it: T,
}

/// A hold that was taken in one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The first token.
    pub(crate) token: i64,
    pub(crate) previous: i16,
}

/// A claim in line, as it is kept there.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) name: Name,
    pub(crate) id: leasehold_core::ClaimId,
    /// For how many microseconds a place lasts.
    pub(crate) life: i64,
    /// Whether nobody can be granted the name together with it.
    pub(crate) alone: bool,
    /// Whether it is among the first, who look at the time when a hold is over.
    pub(crate) near: bool,
    /// For how long a grant that it is told of lasts, at the most.
    pub(crate) claim_time: Duration,
}

/// What is known of claims in line.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    /// Of each that stands: what it is by now.
    pub(crate) stands: Vec<Option<Timed<i16>>>,
    /// Where clients are told: what [`lapses`](Database::lapses) says.
    pub(crate) lapses: Vec<(Name, i64)>,
    /// How many wait before the first of them.
    pub(crate) ahead: u32,
}

/// Why a statement has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into() }
    }
}

/// What is done where there are no tables.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// They are made.
    Make,
    /// A look makes nothing, and finds nothing. It may be at a replica.
    Leave,
}

/// What is found of names: their rows, and whether a replica told them.
pub(crate) struct Looked {
    pub(crate) snapshots: Vec<(Name, Snapshot)>,
    /// It may be behind its primary, and counts as no lineage.
    pub(crate) by_replica: bool,
}

/// Names cannot be locked in a server that is only read, as a replica is. A look at it is none the worse.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn promised_by_replica(setting: &str, found: &str, wanted: &str) -> Guarantee {
    let mut judged = Guarantee::new(Level::BestEffort, &[]);
    judged.lower(
        setting,
        found,
        wanted,
        "a replica refuses claims, and what it shows may be behind its primary",
    );
    judged
}

/// Another server stands where the one stood that answered: a grant of it is none any more.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn replaced() -> Failed {
    Failed::new(Fault::Unknown, "another server took the place of the one that answered")
}

/// What is wrong with tables, on one line, whatever somebody else called what is in them.
pub(crate) fn misconfigured(what: &str) -> Failed {
    let line: String = what.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Failed::new(Fault::Misconfigured, line)
}

/// Columns by what they hold.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) type Columns = &'static [(&'static str, &'static [&'static str])];

/// What is wrong with a table that has one of our names.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn wrong(table: &str, what: impl fmt::Display) -> Failed {
    misconfigured(&format!("its table {table} {what}"))
}

/// A table that has other columns or keys than ours.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn altered(table: &str, how: impl fmt::Display) -> Failed {
    wrong(
        table,
        format!(
            "was not made by leasehold, or altered: {how}; alter it back, or drop the tables leasehold_* while nobody \
        holds a lock"
        ),
    )
}

/// A row of ours that is not as we write it: somebody changed the tables, or what is in them.
pub(crate) fn unlike(column: &str, why: &str) -> Failed {
    Failed::new(
        Fault::Misconfigured,
        format!(
            "a row of its tables is not as leasehold writes it (column {column}: {why}): undo what was changed in the tables \
             leasehold_*, or make them anew while nobody holds a lock"
        ),
    )
}

impl Failed {
    /// The same about a statement that may have been done: what its answer says cannot be read.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn in_doubt(self) -> Self {
        Self { fault: Fault::Unknown, ..self }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::new(error.fault, error.message)
    }
}

impl From<Failed> for EngineError {
    fn from(failed: Failed) -> Self {
        Self::new(failed.fault, failed.message)
    }
}

pub(crate) type Answered<'a, T> = BoxFuture<'a, Result<T, Failed>>;

/// A database with our tables. Where a method takes several names, they come sorted, each once, and what is not done to one leaves
/// the others as they are.
pub(crate) trait Database: Send + Sync + 'static {
    /// Takes names that nobody holds or wants; `None` for one that is not such.
    fn take<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> Answered<'a, Vec<Option<Timed<Taken>>>>;

    /// Ends holds that were taken so and that nobody waits behind; `None` for one that is not such.
    fn free<'a>(&'a self, releases: &'a [Release]) -> Answered<'a, Vec<Option<Timed<()>>>>;

    /// Extends holds; `None` for one that does not stand as it is said.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Answered<'a, Vec<Option<Timed<()>>>>;

    /// Lets places in line live on.
    fn speak<'a>(&'a self, places: &'a [QueueEntry]) -> Answered<'a, Spoken>;

    /// Of each of these names that somebody holds: in how many microseconds the first of its holds is over, unless it is extended. Not
    /// asked where clients are told.
    fn lapses<'a>(&'a self, names: &'a [Name]) -> Answered<'a, Vec<(Name, i64)>>;

    /// Whether clients are told of what is granted to them. Else they look for it.
    fn tells(&self) -> bool {
        false
    }

    /// Whether what is told is heard right now. Else claims in line are looked for more often.
    fn hears(&self) -> bool {
        true
    }

    /// What was granted to claims of this client while they stood in line, and has not been confirmed, and when names that are kept
    /// taken are free, of which its claims are the first in line. Cheap, for it is asked several
    /// times a second; not asked where clients are told.
    fn called(&self, client: ClientId) -> Answered<'_, Vec<Outgoing>>;

    /// Returns when something was changed since this returned last, where that can be known.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How many connections the user may have, and how many are in use, as the server said last; nothing where there is no such limit.
    fn slots(&self) -> Option<Slots> {
        None
    }

    /// From now on nothing is told any more to this client, which looks for what became of its claims from time to time, or it is again.
    fn doze(&self, asleep: bool) {
        let _ = asleep;
    }

    /// Closes all connections that nobody uses right now.
    fn let_go(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Asked every second: what is not needed is given up, as what tells where no claim of this client `waits`.
    fn rest(&self, waits: bool) -> BoxFuture<'_, ()> {
        let _ = waits;
        Box::pin(std::future::ready(()))
    }

    /// Does anything to one name, in a transaction.
    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> Answered<'a, Timed<Changes>>;

    /// The rows of these names. Needs no right to write, and a server that is only read will do.
    fn look<'a>(&'a self, names: &'a [Name]) -> Answered<'a, Looked>;

    /// The names that have rows and begin so, asked as [`look`](Self::look) asks.
    fn names<'a>(&'a self, prefix: &'a str) -> Answered<'a, Vec<Name>>;

    /// Names of which something is over, out of so many behind `after`; and the last of those that were looked at, if there are
    /// more. Rows that say nothing any more are deleted.
    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> Answered<'a, (Vec<Name>, Option<String>)>;

    /// Which tables these are, of which database, as far as it is known: what tells their tokens from others.
    fn lineage(&self) -> Lineage;

    /// One round trip; nothing is made.
    fn ping(&self) -> Answered<'_, ()>;

    /// What is promised, as the database is configured.
    fn guarantee(&self) -> Answered<'_, Guarantee>;
}

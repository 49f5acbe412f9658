//! The `Database` trait: everything that the engine asks of a database, implemented by each dialect in its own
//! statements. Also the results and errors that the dialects share.

use std::{fmt, time::Duration};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use leasehold_core::Level;
use leasehold_core::{BoxFuture, Claim, EngineError, Fault, Guarantee, Hold, Lineage, Name, Release};

use crate::{
    row::ClientId,
    slots::Slots,
    step::{Changes, PeerNotification, Snapshot, Verb},
};

/// A note in the guarantee of every server: the server's own clock ends the leases.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const CLOCK: &str =
    "setting the clock of the database forward ends leases early: holders are notified at their next renewal";

/// A result, and the time of the database when it was produced, in microseconds.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    pub(crate) now: i64,
    pub(crate) value: T,
}

/// A hold that one statement has taken (the fast path).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The first token.
    pub(crate) token: i64,
    pub(crate) previous: i16,
}

/// A waiting claim, as its client remembers it.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) name: Name,
    pub(crate) id: leasehold_core::ClaimId,
    /// How many microseconds its queue entry lasts.
    pub(crate) life: i64,
    /// Whether no other claim can hold the name together with it.
    pub(crate) alone: bool,
    /// Whether it is near the head of the queue, where claims check the time at which a hold ends.
    pub(crate) near: bool,
    /// The longest time that a grant by notification lasts.
    pub(crate) claim_time: Duration,
}

/// The state of waiting claims.
#[derive(Debug, Default)]
pub(crate) struct Refreshed {
    /// For each claim: its current state, if its row still exists.
    pub(crate) states: Vec<Option<Timed<i16>>>,
    /// Where the database notifies clients: the result of [`expiries`](Database::expiries).
    pub(crate) expiries: Vec<(Name, i64)>,
    /// How many claims wait ahead of the first of them.
    pub(crate) ahead: u32,
}

/// Why a statement has no result.
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

/// What to do where the tables do not exist.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Create them.
    Create,
    /// Create nothing: inspection then finds nothing. The server may be a replica.
    Leave,
}

/// The rows found for some names, and whether a replica returned them.
pub(crate) struct Looked {
    pub(crate) snapshots: Vec<(Name, Snapshot)>,
    /// The replica may be behind its primary, and its tables do not count as a lineage.
    pub(crate) by_replica: bool,
}

/// The guarantee of a read-only server, such as a replica: names cannot be locked there, but inspection works.
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

/// The server was replaced; grants of its predecessor are void.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn replaced() -> Failed {
    Failed::new(Fault::Unknown, "the server was replaced by another one")
}

/// The error for unusable tables. It is a single line, even if names that other users chose contain control
/// characters.
pub(crate) fn misconfigured(what: &str) -> Failed {
    let line: String = what.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Failed::new(Fault::Misconfigured, line)
}

/// Columns, grouped by type.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) type Columns = &'static [(&'static str, &'static [&'static str])];

/// The error for an unusable table that has one of our names.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn wrong(table: &str, what: impl fmt::Display) -> Failed {
    misconfigured(&format!("its table {table} {what}"))
}

/// The error for a table with other columns or keys than ours.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn altered(table: &str, how: impl fmt::Display) -> Failed {
    wrong(
        table,
        format!(
            "was not made by leasehold, or altered: {how}; undo that, or drop the tables leasehold_* while no lock is held"
        ),
    )
}

/// The error for a row with values that leasehold does not write: another program changed the tables or their rows.
pub(crate) fn bad_value(column: &str, why: &str) -> Failed {
    Failed::new(
        Fault::Misconfigured,
        format!(
            "a row of its tables is not as leasehold writes it (column {column}: {why}): undo the change of the tables leasehold_*, or \
             create them again while no lock is held"
        ),
    )
}

impl Failed {
    /// The same error for a statement that may have been executed, because its answer cannot be read.
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

/// A database with our tables. A method that takes several names gets them sorted and without duplicates; a name for
/// which nothing is done does not affect the others.
pub(crate) trait Database: Send + Sync + 'static {
    /// Takes names that have neither holder nor waiter; `None` for every other name.
    fn take<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> Answered<'a, Vec<Option<Timed<Taken>>>>;

    /// Releases fast-path holds that have no waiters; `None` for every other hold.
    fn free<'a>(&'a self, releases: &'a [Release]) -> Answered<'a, Vec<Option<Timed<()>>>>;

    /// Extends holds; `None` for each hold that does not exist as stated.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> Answered<'a, Vec<Option<Timed<()>>>>;

    /// Extends the queue entries of waiting claims, and returns their state.
    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> Answered<'a, Refreshed>;

    /// For each of these names that is held: in how many microseconds the first of its holds ends, unless it is
    /// extended. Not called where the database notifies clients.
    fn expiries<'a>(&'a self, names: &'a [Name]) -> Answered<'a, Vec<(Name, i64)>>;

    /// Whether the database notifies clients of their grants. Otherwise they poll.
    fn notifies(&self) -> bool {
        false
    }

    /// Whether notifications arrive at present. Otherwise waiting claims are polled more often.
    fn is_listening(&self) -> bool {
        true
    }

    /// The unconfirmed grants to waiting claims of this client, and the times at which names in their minimum hold time
    /// become free, where one of its claims is the head of the queue. Cheap, because it is called several times a
    /// second. Not called where the database notifies clients.
    fn poll_grants(&self, client: ClientId) -> Answered<'_, Vec<PeerNotification>>;

    /// Returns when something changed since the last return, where the database can report changes.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How many connections the user may have and how many are in use, as the server last reported; `None` where
    /// there is no limit.
    fn slots(&self) -> Option<Slots> {
        None
    }

    /// Stops notifications to this client, which then polls for its claims from time to time (`asleep`), or starts
    /// them again.
    fn set_asleep(&self, asleep: bool) {
        let _ = asleep;
    }

    /// Closes all idle connections.
    fn close_idle(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called every second: releases what is not needed, such as the subscription to notifications while no claim of
    /// this client `waits`.
    fn close_unused(&self, waits: bool) -> BoxFuture<'_, ()> {
        let _ = waits;
        Box::pin(std::future::ready(()))
    }

    /// Applies one verb to one name, in a transaction.
    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> Answered<'a, Timed<Changes>>;

    /// The rows of these names. Needs no right to write, and works on a read-only server.
    fn look<'a>(&'a self, names: &'a [Name]) -> Answered<'a, Looked>;

    /// The names with rows that begin with `prefix`. Needs as little as [`look`](Self::look).
    fn names<'a>(&'a self, prefix: &'a str) -> Answered<'a, Vec<Name>>;

    /// Examines `count` names after `after`: returns those with something expired, and the last examined name if
    /// there are more. Deletes rows that carry no information any more.
    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> Answered<'a, (Vec<Name>, Option<String>)>;

    /// Identifies these tables of this database, as far as they are known, to distinguish their tokens from others.
    fn lineage(&self) -> Lineage;

    /// One round trip; creates nothing.
    fn ping(&self) -> Answered<'_, ()>;

    /// The guarantee of the database as it is configured.
    fn guarantee(&self) -> Answered<'_, Guarantee>;
}

//! The `Database` trait: everything that the engine asks of a database, implemented by each dialect in its own
//! statements. Also the results and errors that the dialects share.

use std::{fmt, time::Duration};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use leasehold_core::Level;
use leasehold_core::{
    BoxFuture, Claim, Diagnostic, EngineError, Fault, Guarantee, Hold, Lineage, MemoWrite, Name,
    NoticeSender, Release,
};

use crate::{
    connection_slots::ConnectionSlots,
    memo::{MemoWritten, StoredMemo},
    row::ClientId,
    step::{Changes, ClientNotification, Snapshot, Verb},
    step_all::AllChanges,
};

/// A note in the guarantee of every server: the server's own clock ends the leases.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) const CLOCK_NOTE: &str =
    "setting the clock of the database forward ends leases early: holders are notified at their next renewal";

/// A result, and the time of the database when it was produced, in microseconds.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    pub(crate) now: i64,
    pub(crate) value: T,
}

/// A grant by one statement of the fast path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastGrant {
    /// The first token of the grant.
    pub(crate) token: i64,
    /// How the previous hold ended, as the [code](crate::row::previous_code) in the tables.
    pub(crate) previous: i16,
}

/// A waiting claim, as its client stores it.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) name: Name,
    pub(crate) id: leasehold_core::ClaimId,
    /// How many microseconds its queue entry lasts, unless it is extended.
    pub(crate) life_micros: i64,
    /// Whether the claim is exclusive: no other claim can hold the name together with this one.
    pub(crate) exclusive: bool,
    /// Whether the claim is near the head of the queue. At the expected end of a hold ahead of such a claim, the client
    /// of the claim checks whether the hold has ended.
    pub(crate) near_head: bool,
    /// The claim time: how long a pushed grant lasts without a confirmation, at most.
    pub(crate) claim_time: Duration,
}

/// The state of waiting claims, as the database reports it when their queue entries are extended.
#[derive(Debug, Default)]
pub(crate) struct Refreshed {
    /// For each claim, in order: the code of its current state (`stand`), if its row still exists.
    pub(crate) states: Vec<Option<Timed<i16>>>,
    /// The result of [`expiries`](Database::expiries) if the database notifies clients; else empty.
    pub(crate) expiries: Vec<(Name, i64)>,
    /// How many claims are ahead of the claim among these that has the fewest claims ahead of it.
    pub(crate) position: u32,
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

/// What a connection does if the tables do not exist yet.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingTables {
    /// Create them.
    Create,
    /// Create no tables: without tables inspection finds no names. The server is allowed to be a replica.
    Leave,
}

/// The rows that an inspection found for some names.
pub(crate) struct LookResult {
    pub(crate) snapshots: Vec<(Name, Snapshot)>,
    /// Whether a replica returned the rows. A replica may be behind its primary, so its tokens have no lineage.
    pub(crate) by_replica: bool,
}

/// The guarantee of a read-only server, such as a replica: names cannot be locked there, but inspection works.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn replica_guarantee(setting: &str, found: &str, wanted: &str) -> Guarantee {
    let mut guarantee = Guarantee::new(Level::BestEffort, &[]);
    guarantee.lower(
        setting,
        found,
        wanted,
        "a replica refuses claims, and what it shows may be behind its primary",
    );
    guarantee
}

/// The error for a request to a server that was replaced: grants of its predecessor are void.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn replaced() -> Failed {
    Failed::new(Fault::Unknown, "the server was replaced by another one")
}

/// The error for a maximum number of connections that is smaller than `needed`.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn too_few_connections(needed: usize) -> leasehold_core::Error {
    leasehold_core::Error::misconfigured(format!(
        "max_connections is too small: {needed} connections are needed, so that renewals find one while other requests wait"
    ))
}

/// The error for unusable tables. Its text is a single line: control characters, which names that other users chose can
/// contain, are replaced.
pub(crate) fn misconfigured(what: &str) -> Failed {
    let line: String = what.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Failed::new(Fault::Misconfigured, line)
}

/// The columns of a table, grouped by type: for each type its name, and the names of the columns.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) type ColumnsByType = &'static [(&'static str, &'static [&'static str])];

/// The error for an unusable table that has one of our names.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn unusable_table(table: &str, what: impl fmt::Display) -> Failed {
    misconfigured(&format!("its table {table} {what}"))
}

/// The error for a table with other columns or keys than ours.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn altered_table(table: &str, how: impl fmt::Display) -> Failed {
    unusable_table(
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
    /// This error with the fault `Unknown`, for a statement whose answer cannot be read: the statement was possibly
    /// executed.
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

/// The future result of a [`Database`] method.
pub(crate) type DbFuture<'a, T> = BoxFuture<'a, Result<T, Failed>>;

/// A database with the tables of leasehold. The caller of a method that takes several names must pass them sorted and
/// without duplicates. A name for which a method does nothing does not affect the other names.
pub(crate) trait Database: Send + Sync + 'static {
    /// Grants those claims whose names have neither holder nor waiter (the fast path). The results are in the order of
    /// the claims; the result is `None` for a claim that was not granted.
    fn fast_claim<'a>(
        &'a self,
        claims: &'a [Claim],
        client: ClientId,
    ) -> DbFuture<'a, Vec<Option<Timed<FastGrant>>>>;

    /// Releases fast-path holds that have no waiters, and returns the time of each release; `None` for every other
    /// hold, which stays.
    fn fast_release<'a>(&'a self, releases: &'a [Release]) -> DbFuture<'a, Vec<Option<Timed<()>>>>;

    /// Extends holds, and returns the time of each extension; `None` for each hold of which the tables have no row with
    /// the same id and token.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> DbFuture<'a, Vec<Option<Timed<()>>>>;

    /// Extends the queue entries of waiting claims, and returns their state.
    fn refresh<'a>(&'a self, entries: &'a [QueueEntry]) -> DbFuture<'a, Refreshed>;

    /// For each of these names that is held: how many microseconds remain until the earliest end of its holds, if no
    /// hold is extended. Not called where the database notifies clients.
    fn expiries<'a>(&'a self, names: &'a [Name]) -> DbFuture<'a, Vec<(Name, i64)>>;

    /// Whether the database notifies clients of their grants. Otherwise they poll.
    fn notifies(&self) -> bool {
        false
    }

    /// Whether notifications arrive at present. Otherwise a client polls more often for its waiting claims.
    fn is_listening(&self) -> bool {
        true
    }

    /// Reads the unconfirmed grants to waiting claims of this client. Also reads when a name in its minimum hold time
    /// becomes free, if a claim of this client is the head of the queue of the name. Must be cheap, because it is
    /// called several times a second. Not called where the database notifies clients.
    fn poll_grants(&self, client: ClientId) -> DbFuture<'_, Vec<ClientNotification>>;

    /// Completes when another client has possibly granted a claim since the last such future completed. Never completes
    /// if the database cannot report changes: then the client polls at its poll interval.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Tells a view of changes: see [`Inspect::tell_changes`](leasehold_core::Inspect::tell_changes).
    fn tell_changes<'a>(&'a self, notices: &'a NoticeSender) -> BoxFuture<'a, Result<(), EngineError>> {
        let _ = notices;
        Box::pin(std::future::ready(Ok(())))
    }

    /// How many connections the database user is allowed to have and how many are in use, by the last report of the
    /// server. `None` if there is no limit or no report yet.
    fn connection_slots(&self) -> Option<ConnectionSlots> {
        None
    }

    /// With `asleep`, stops the notifications to this client, which then polls for its claims from time to time.
    /// Otherwise allows the notifications again.
    fn set_asleep(&self, asleep: bool) {
        let _ = asleep;
    }

    /// Closes all idle connections.
    fn close_idle_connections(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Closes what is not needed, such as the connection for notifications while no claim of this client waits. The
    /// maintenance task calls this about once a second or more often.
    fn release_unneeded(&self, claims_wait: bool) -> BoxFuture<'_, ()> {
        let _ = claims_wait;
        Box::pin(std::future::ready(()))
    }

    /// Applies one verb to one name, in a transaction.
    fn apply<'a>(&'a self, name: &'a Name, verb: &'a Verb) -> DbFuture<'a, Timed<Changes>>;

    /// Claims these names in one transaction, all or none. The transaction locks the rows in the order of the claims,
    /// which is the byte order of their names.
    fn claim_all<'a>(&'a self, claims: &'a [Claim], client: ClientId) -> DbFuture<'a, AllChanges>;

    /// Reads the rows of these names. Needs no right to write, and works on a read-only server.
    fn look<'a>(&'a self, names: &'a [Name]) -> DbFuture<'a, LookResult>;

    /// The names that begin with `prefix` and have rows. Needs no more rights than [`look`](Self::look).
    fn names<'a>(&'a self, prefix: &'a str) -> DbFuture<'a, Vec<Name>>;

    /// Examines `count` names after the name `after`. Returns the names with expired claims or holds, and the last
    /// examined name; `None` in its place if fewer than `count` names were left. Deletes the rows of names that carry
    /// no information any more.
    fn sweep<'a>(&'a self, after: &'a str, count: i64) -> DbFuture<'a, (Vec<Name>, Option<String>)>;

    /// The memo of a name, and the time of the database; `None` if there is none. Creates nothing. Fails on a replica,
    /// which may be behind its primary.
    fn read_memo<'a>(&'a self, name: &'a Name) -> DbFuture<'a, Option<Timed<StoredMemo>>>;

    /// Writes a memo under a hold, in a transaction that locks the row of the name.
    fn write_memo<'a>(&'a self, write: &'a MemoWrite) -> DbFuture<'a, Timed<MemoWritten>>;

    /// Deletes memos that have ended, up to [`MAX_SWEPT_MEMOS`](crate::memo::MAX_SWEPT_MEMOS), and returns how many.
    /// Leaves those whose claim still holds the name: the number of such a memo tells late writes of its claim from
    /// later ones.
    fn sweep_memos(&self) -> DbFuture<'_, usize>;

    /// Identifies the tables of this database, to distinguish their tokens from those of other tables. Zero before the
    /// first connection.
    fn lineage(&self) -> Lineage;

    /// Makes one round trip to the database; creates nothing.
    fn ping(&self) -> DbFuture<'_, ()>;

    /// The guarantee of the database as it is configured.
    fn guarantee(&self) -> DbFuture<'_, Guarantee>;

    /// What an operator should know beside the guarantee: see [`Inspect::diagnose`](leasehold_core::Inspect::diagnose).
    fn diagnose(&self) -> DbFuture<'_, Vec<Diagnostic>>;
}

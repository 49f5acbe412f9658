//! What the engine asks of a database whose rows it holds: PostgreSQL and MySQL implement these traits in their own
//! statements.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Contact, Diagnostic, Guarantee, Lineage, Name};

use super::{client::EndReport, table::RowTable};
use crate::database::Failed;

/// The longest ttl of a hold. A server keeps a session whose client has vanished for longer than this: the settings of
/// the session say so, and the session reads them back.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(60);

/// The longest list of names. For each name the server is asked whether its row is locked.
pub(crate) const MAX_LISTED: usize = 1000;

/// The outcome of a try to lock a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryLock {
    /// The row is locked, in a transaction that stays open. The number is larger than that of every earlier lock of the
    /// row: it was read after the row was locked.
    Locked(u64),
    /// Another transaction has locked the row. No transaction is open.
    Taken,
    /// There is no such row. No transaction is open.
    Missing,
}

/// A connection that holds at most one row.
pub(crate) trait RowSession: Send + Sync + 'static {
    /// Begins a transaction and tries to lock the row of a name, without waiting for another transaction.
    fn lock<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<TryLock, Failed>>;

    /// Creates the row of a name, unless there is one.
    fn create<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<(), Failed>>;

    /// Ends the transaction.
    fn unlock(&self) -> BoxFuture<'_, Result<(), Failed>>;

    /// One round trip.
    fn ping(&self) -> BoxFuture<'_, Result<(), Failed>>;

    /// One round trip that proves that the session and its transaction still exist, on a server where the lock of a row
    /// excludes. After an error the hold has ended.
    fn heartbeat(&self) -> BoxFuture<'_, Result<(), Failed>>;

    /// Whether the session has ended.
    fn has_ended(&self) -> bool;

    /// The lineage of the tokens.
    fn lineage(&self) -> Lineage;

    /// The row of a name, as another session sees it.
    fn look<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<LookedRow, Failed>>;

    /// The names of the rows that begin with this prefix: at most [`MAX_LISTED`] and one more, if there are more.
    fn names<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Failed>>;

    /// What the server promises, as it is configured now.
    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>>;
}

/// A row as another session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookedRow {
    /// No transaction has locked it, or there is no such row.
    Free,
    /// A transaction has locked it; the server may tell whose.
    Locked(Option<RowHolder>),
}

/// The session that has locked a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowHolder {
    /// The id of the session on the server.
    pub(crate) session: String,
    /// The program and its address, as far as the server tells.
    pub(crate) owner: String,
    /// How long its transaction lasts already.
    pub(crate) held: Option<Duration>,
}

/// A database with rows to hold.
pub(crate) trait RowServer: Send + Sync + 'static {
    /// Connects; refuses servers and tables in which the lock of a row does not exclude. The task of the connection
    /// keeps `end`, and drops it when the connection is closed. If the session is dropped, the task closes the
    /// connection, even if the server does not answer.
    fn open(&self, end: EndReport) -> BoxFuture<'_, Result<Arc<dyn RowSession>, Failed>>;

    /// What an operator should know of the server and the table beside the guarantee. Changes nothing.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>>;

    /// How an operator ends the session that has locked a row, for messages. `session`: its id, if the server tells it.
    fn how_to_end(&self, session: Option<&str>) -> String;

    /// The rows that are the locks.
    fn rows(&self) -> &RowTable;

    /// Whether the server was ever reached.
    fn contact(&self) -> &Contact;
}

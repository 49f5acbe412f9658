//! One connection to a server: executes statements and collects their results.

use std::time::Duration;

use leasehold_core::{Instant, Lineage, Room, TooLong};
use mysql_async::{Error, Params, Row, Value, prelude::Queryable};

use super::{
    config::Config,
    dial::{Dialed, dial},
    error::ExecuteError,
    relay::Relayed,
    tables::{self, FoundTables},
};
use crate::{
    connection_slots::ConnectionSlots,
    database::{Failed, MissingTables},
    engine::REQUEST_TIMEOUT,
    runtime,
};

/// How long a connection may take to answer a ping. After that time the request is sent on another connection, so that
/// it can still be answered within its own time limit.
const PING_LIMIT: Duration = Duration::from_secs(1);
/// The memory that each result set, row and column needs beside its bytes.
const ITEM_OVERHEAD: u64 = 64;
/// Errors after which a statement was not executed because it is not prepared: the server or a proxy does not prepare
/// it (1047, 1295), has no room for it (1461), does not know it any more (1243), or cannot prepare it again (1615).
const NOT_PREPARED: [u16; 5] = [1047, 1243, 1295, 1461, 1615];

/// The result of one of several statements.
pub(crate) struct ResultSet {
    pub(crate) rows: Vec<Row>,
    /// The number of rows that the statement changed.
    pub(super) changed_rows: u64,
    /// The last insert id: of a generated key, or set by `LAST_INSERT_ID(value)`.
    pub(super) last_insert_id: Option<u64>,
}

/// One connection. Dropping it closes it, and the server rolls back what was not committed.
pub(crate) struct Conn {
    conn: mysql_async::Conn,
    /// The tables that the connection leads to, if there are any.
    tables: Option<FoundTables>,
    /// Whether the driver panicked in the middle of an answer: then the next bytes on the connection are unpredictable.
    is_out_of_sync: bool,
    /// When the last answer arrived on this connection.
    pub(super) last_answer: Instant,
}

impl Conn {
    /// Connects, and finds or creates the tables.
    pub(super) async fn open(
        config: &Config,
        now: Instant,
        missing_tables: MissingTables,
    ) -> Result<Self, Failed> {
        let finding_tables = async {
            let (mut conn, _) = Self::connect(config, now).await?;
            conn.tables = tables::find_tables(&mut conn, missing_tables).await?;
            Ok(conn)
        };
        Self::within_dial_limit(config, finding_tables).await
    }

    /// Connects, and does nothing else. Also returns what [reports](Dialed::relayed) that the server has closed the
    /// connection.
    pub(crate) async fn connect(config: &Config, now: Instant) -> Result<(Self, Option<Relayed>), Failed> {
        let Dialed { conn, relayed } = dial(config).await?;
        Ok((Self { conn, tables: None, is_out_of_sync: false, last_answer: now }, relayed))
    }

    /// Connects and sets up a connection within the time limit for that. Adds the address of the server to an error.
    pub(crate) async fn within_dial_limit<T>(
        config: &Config,
        connecting: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let limit = config.dial_limit();
        let timed_out =
            || Err(Failed::new(leasehold_core::Fault::Retry, format!("no answer within {limit:?}")));
        runtime::within(limit, connecting)
            .await
            .unwrap_or_else(timed_out)
            .map_err(|failed| config.with_address(&failed))
    }

    /// Executes some statements in one round trip; returns their results, in order. If a statement fails, returns its
    /// error; the later statements are not executed.
    pub(crate) async fn execute(&mut self, text: &str) -> Result<Vec<ResultSet>, ExecuteError> {
        self.execute_within(REQUEST_TIMEOUT, text).await
    }

    /// The same with another time limit.
    pub(super) async fn execute_within(
        &mut self,
        limit: Duration,
        text: &str,
    ) -> Result<Vec<ResultSet>, ExecuteError> {
        let timed_out = || Err(ExecuteError::TimedOut(limit));
        runtime::within(limit, self.execute_unlimited(text)).await.unwrap_or_else(timed_out)
    }

    /// Whether the other side still answers.
    pub(super) async fn answers_ping(&mut self) -> bool {
        runtime::within(PING_LIMIT, self.execute_unlimited("DO 0")).await.is_some_and(|answer| answer.is_ok())
    }

    /// Executes statements without a time limit; a panic of the driver becomes an error.
    pub(super) async fn execute_unlimited(&mut self, text: &str) -> Result<Vec<ResultSet>, ExecuteError> {
        let answers = caught(self.collect_results(text)).await;
        self.is_out_of_sync |= answers.is_err();
        answers?
    }

    /// Executes statements, and collects their results within the size limit of an answer.
    async fn collect_results(&mut self, text: &str) -> Result<Vec<ResultSet>, ExecuteError> {
        let (mut sets, mut room) = (Vec::new(), Ok(Room::whole()));
        let mut result = self.conn.query_iter(text).await.map_err(|error| ExecuteError::of(error, 0))?;
        // `columns` returns `Some`, also for a result without columns, until the last result is read.
        while result.columns().is_some() {
            let (changed_rows, last_insert_id) = (result.affected_rows(), result.last_insert_id());
            room = room.and_then(|mut room: Room| room.take(ITEM_OVERHEAD).map(|()| room));
            let rows;
            // After an error among its rows, the statement counts as executed.
            let collected = result.reduce((Vec::new(), room), collect_row).await;
            (rows, room) = collected.map_err(|error| ExecuteError::of(error, sets.len() + 1))?;
            room.map_err(|error| ExecuteError::AnswerLost(error.to_string()))?;
            sets.push(ResultSet { rows, changed_rows, last_insert_id });
        }
        // The driver keeps an error of any but the first statement until the next call.
        result.drop_result().await.map_err(|error| ExecuteError::of(error, sets.len()))?;
        Ok(sets)
    }

    /// Executes one statement without result rows as a prepared statement, which stays prepared on this connection.
    /// `None` if the server does not prepare it, because it has too many prepared statements or none at all: then
    /// nothing was done.
    pub(super) async fn execute_prepared(
        &mut self,
        text: &str,
        values: Params,
    ) -> Result<Option<ResultSet>, ExecuteError> {
        let executing = caught(async {
            let statement = match self.conn.prep(text).await {
                Ok(statement) => statement,
                Err(Error::Server(error)) if NOT_PREPARED.contains(&error.code) => return Ok(None),
                Err(error) => return Err(ExecuteError::of(error, 0)),
            };
            let result = match self.conn.exec_iter(statement, values).await {
                Err(Error::Server(error)) if NOT_PREPARED.contains(&error.code) => return Ok(None),
                result => result.map_err(|error| ExecuteError::of(error, 0))?,
            };
            let (changed_rows, last_insert_id) = (result.affected_rows(), result.last_insert_id());
            result.drop_result().await.map_err(|error| ExecuteError::of(error, 1))?;
            Ok(Some(ResultSet { rows: Vec::new(), changed_rows, last_insert_id }))
        });
        let timed_out = || Ok(Err(ExecuteError::TimedOut(REQUEST_TIMEOUT)));
        let executed = runtime::within(REQUEST_TIMEOUT, executing).await.unwrap_or_else(timed_out);
        self.is_out_of_sync |= executed.is_err();
        executed?
    }

    /// Whether the table of memos exists; creates it if `missing_tables` says so.
    pub(super) async fn find_memos(&mut self, missing_tables: MissingTables) -> Result<bool, Failed> {
        if self.tables.as_ref().is_none_or(|tables| tables.has_memos) {
            return Ok(self.has_tables());
        }
        let found = tables::find_memos(self, missing_tables).await?;
        self.tables.iter_mut().for_each(|tables| tables.has_memos = found);
        Ok(found)
    }

    pub(super) const fn has_tables(&self) -> bool {
        self.tables.is_some()
    }

    /// Whether the tables are those of a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.is_replica)
    }

    /// Whether names can be locked in the tables.
    pub(super) fn can_lock(&self) -> bool {
        self.has_tables() && !self.is_replica()
    }

    /// The lineage: identifies these tables on this server.
    pub(super) fn lineage(&self) -> Lineage {
        self.tables.as_ref().map_or(Lineage::new(0), |tables| tables.lineage)
    }

    /// How many connections the server had left when this one was opened.
    pub(super) fn connection_slots(&self) -> Option<ConnectionSlots> {
        self.tables.as_ref()?.slots
    }

    /// Whether the server ends abandoned transactions.
    fn ends_idle_transactions(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.ends_idle_transactions)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_out_of_sync || self.conn.is_disconnected()
    }

    /// The statements that begin a transaction which the server ends if its client abandons it.
    pub(super) fn begin_statements(&self) -> &'static str {
        if self.ends_idle_transactions() { "BEGIN" } else { "SET SESSION wait_timeout = 5; BEGIN" }
    }

    /// The statements that commit a transaction that [`begin_statements`](Self::begin_statements) began.
    pub(super) fn commit_statements(&self) -> &'static str {
        if self.ends_idle_transactions() { "COMMIT" } else { "COMMIT; SET SESSION wait_timeout = 60" }
    }

    /// The number of [`begin_statements`](Self::begin_statements).
    pub(super) fn begin_count(&self) -> usize {
        if self.ends_idle_transactions() { 1 } else { 2 }
    }
}

/// Turns a panic of the driver into an error: the driver panics on some malformed answers, such as one with an
/// impossible number of columns. This does not help if the driver allocates more memory than there is: then the
/// allocator ends the process. A check of sizes beforehand is not possible, because nothing can be put between this
/// driver and its connection.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, ExecuteError> {
    let malformed_answer =
        |_| ExecuteError::AnswerLost("its answer is malformed: is it a MySQL server?".to_owned());
    leasehold_core::catch_panic(work).await.map_err(malformed_answer)
}

/// Adds a row to the collected rows of an answer while there is room. As soon as the answer exceeds the size limit,
/// drops the collected rows and every further row of the answer.
fn collect_row(
    (mut rows, room): (Vec<Row>, Result<Room, TooLong>),
    row: Row,
) -> (Vec<Row>, Result<Room, TooLong>) {
    let column = |index| match row.as_ref(index) {
        Some(Value::Bytes(bytes)) => ITEM_OVERHEAD + bytes.len() as u64,
        _ => ITEM_OVERHEAD,
    };
    let row_size = ITEM_OVERHEAD + (0..row.len()).map(column).sum::<u64>();
    let room = room.and_then(|mut room| room.take(row_size).map(|()| room));
    if room.is_ok() {
        rows.push(row);
    } else {
        rows = Vec::new();
    }
    (rows, room)
}

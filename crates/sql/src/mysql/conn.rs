//! One connection to a server.

use std::time::Duration;

use leasehold_core::{Instant, Lineage, Room, TooLong};
use mysql_async::{Row, Value, prelude::Queryable};

use super::{
    config::Config,
    dial::dial,
    error::Broke,
    tables::{self, Known},
};
use crate::{
    database::{Absent, Failed},
    engine::REQUEST_TIMEOUT,
    runtime,
    slots::Slots,
};

/// How long it may take that a connection says that it is still there: on another one the request may still be in time.
const PING_LIMIT: Duration = Duration::from_secs(1);
/// What a set, a row or a column takes in memory beside its bytes.
const PART: u64 = 64;

/// What one of several statements brought.
pub(super) struct Set {
    pub(super) rows: Vec<Row>,
    /// How many rows it changed.
    pub(super) changed: u64,
    /// The number that it made for a row, or said that it did.
    pub(super) last: Option<u64>,
}

/// One connection. Dropping it closes it, and the server undoes what was not committed.
pub(super) struct Conn {
    conn: mysql_async::Conn,
    /// The tables that it leads to, if there are any.
    tables: Option<Known>,
    /// The driver panicked in the middle of an answer: what comes next on the connection is anything.
    confused: bool,
    /// When something was answered on it last.
    pub(super) spoke: Instant,
}

impl Conn {
    /// Connects, and finds or makes the tables.
    pub(super) async fn open(config: &Config, now: Instant, absent: Absent) -> Result<Self, Failed> {
        let dialing = async {
            let conn = dial(config).await?;
            let mut conn = Self { conn, tables: None, confused: false, spoke: now };
            conn.tables = tables::known(&mut conn, absent).await?;
            Ok(conn)
        };
        let limit = config.dial_limit();
        let late = || Err(Failed::new(leasehold_core::Fault::Retry, format!("no answer within {limit:?}")));
        runtime::within(limit, dialing).await.unwrap_or_else(late).map_err(|failed| config.say(&failed))
    }

    /// Says some statements at once; what each of them brought, in order. An error ends all that come after it.
    pub(super) async fn say(&mut self, text: &str) -> Result<Vec<Set>, Broke> {
        let late = || Err(Broke::Late(REQUEST_TIMEOUT));
        runtime::within(REQUEST_TIMEOUT, self.answers(text)).await.unwrap_or_else(late)
    }

    /// Whether the other side is still there.
    pub(super) async fn answers_soon(&mut self) -> bool {
        runtime::within(PING_LIMIT, self.answers("DO 0")).await.is_some_and(|answer| answer.is_ok())
    }

    async fn answers(&mut self, text: &str) -> Result<Vec<Set>, Broke> {
        let answers = caught(self.sets(text)).await;
        self.confused |= answers.is_err();
        answers?
    }

    async fn sets(&mut self, text: &str) -> Result<Vec<Set>, Broke> {
        let (mut sets, mut room) = (Vec::new(), Ok(Room::whole()));
        let mut result = self.conn.query_iter(text).await.map_err(|error| Broke::of(error, 0))?;
        // The last one has columns, if only none, until it is read.
        while result.columns().is_some() {
            let (changed, last) = (result.affected_rows(), result.last_insert_id());
            room = room.and_then(|mut room: Room| room.take(PART).map(|()| room));
            let rows;
            // An error among its rows: as far as anybody knows, the statement was done.
            let read = result.reduce((Vec::new(), room), within).await;
            (rows, room) = read.map_err(|error| Broke::of(error, sets.len() + 1))?;
            room.map_err(|error| Broke::Lost(error.to_string()))?;
            sets.push(Set { rows, changed, last });
        }
        // The driver keeps an error of any but the first until it is asked again.
        result.drop_result().await.map_err(|error| Broke::of(error, sets.len()))?;
        Ok(sets)
    }

    pub(super) const fn has_tables(&self) -> bool {
        self.tables.is_some()
    }

    /// Whether they are those of a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.is_replica)
    }

    /// Whether names can be locked in them.
    pub(super) fn can_lock(&self) -> bool {
        self.has_tables() && !self.is_replica()
    }

    /// Which tables these are, of which server.
    pub(super) fn lineage(&self) -> Lineage {
        self.tables.as_ref().map_or(Lineage::new(0), |tables| tables.lineage)
    }

    /// How many connections the server had left when this one was made.
    pub(super) fn slots(&self) -> Option<Slots> {
        self.tables.as_ref()?.slots
    }

    /// Whether the server ends transactions that nobody goes on with.
    fn watched(&self) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.watched)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.confused || self.conn.is_disconnected()
    }

    /// Begins a transaction that the server ends when nobody goes on with it.
    pub(super) fn begin(&self) -> &'static str {
        if self.watched() { "BEGIN" } else { "SET SESSION wait_timeout = 5; BEGIN" }
    }

    /// Ends it, and what is in it is done.
    pub(super) fn commit(&self) -> &'static str {
        if self.watched() { "COMMIT" } else { "COMMIT; SET SESSION wait_timeout = 60" }
    }

    /// How many statements begin it.
    pub(super) fn begins(&self) -> usize {
        if self.watched() { 1 } else { 2 }
    }
}

/// Turns a panic of the driver into an error: it panics at some malformed answers, as at one with more columns than an address has bits
/// for. Where it asks for less, but for more than there is, the allocator ends the process: nothing can be put between this driver and
/// its connection.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Broke> {
    let nonsense = |_| Broke::Lost("its answer is malformed: is it a MySQL server?".to_owned());
    leasehold_core::caught(work).await.map_err(nonsense)
}

/// Collects the rows of an answer within the bound. Rows beyond it are dropped until the answer, or the time of the request, ends.
fn within(
    (mut rows, room): (Vec<Row>, Result<Room, TooLong>),
    row: Row,
) -> (Vec<Row>, Result<Room, TooLong>) {
    let column = |at| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => PART + bytes.len() as u64,
        _ => PART,
    };
    let takes = PART + (0..row.len()).map(column).sum::<u64>();
    let room = room.and_then(|mut room| room.take(takes).map(|()| room));
    if room.is_ok() {
        rows.push(row);
    } else {
        rows = Vec::new();
    }
    (rows, room)
}

//! A transaction on one name, under the lock of its row.

use leasehold_core::{Fault, Name};
use tokio_postgres::{Error, Row, types::ToSql};

use super::{
    conn::Conn,
    error::{At, is_busy, sort},
    notification_text,
    rows::{claim_row, client_number, column, lock_row},
    statements::{CLAIMS, LOCK, LOCK_NEW, Sql, WRITE},
};
use crate::{
    database::{Failed, Timed},
    row::{ClaimRow, LockRow},
    step::{Changes, Snapshot, Verb},
};

/// A transaction holds the row lock of a name for two round trips; the session's own lock timeout is longer than
/// that.
const BEGIN: &str = "BEGIN";
/// For a second attempt, when that timeout was too short. A longer wait means that another session is stuck.
const BEGIN_PATIENTLY: &str = "BEGIN; SET LOCAL lock_timeout = '3s'";
const PATIENCE: &str = "SET LOCAL lock_timeout = '3s'";
/// For a session with unknown settings.
const BEGIN_ANYWHERE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '3s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL search_path = pg_catalog, pg_temp";

/// All statements that a transaction may execute.
const STATEMENTS: [&Sql; 4] = [&LOCK, &LOCK_NEW, &CLAIMS, &WRITE];

/// Reads the rows of the name, applies the verb, writes the changes.
pub(crate) async fn apply(conn: &Conn, name: &Name, verb: &Verb) -> Result<Timed<Changes>, Failed> {
    let before = |error: Error| sort(&error, At::Before);
    conn.prepare(&STATEMENTS).await.map_err(before)?;
    let begin = if conn.keeps_session() { BEGIN } else { BEGIN_ANYWHERE };
    let mut snapshot = read_or_create(conn, name.as_str(), begin).await;
    if conn.keeps_session() && snapshot.as_ref().is_err_and(is_busy) {
        conn.run("ROLLBACK").await.map_err(before)?;
        snapshot = read_or_create(conn, name.as_str(), BEGIN_PATIENTLY).await;
    }
    let (lock, claims, now) = of(&snapshot.map_err(before)?)?;
    let lock = lock.ok_or_else(|| Failed::new(Fault::Internal, "a row that was just created is missing"))?;
    let done = Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims }.apply(verb)?;
    write(conn, name.as_str(), &done).await?;
    Ok(Timed { now, value: done })
}

/// The row of a name, if it has one, and the rows of its claims.
type Read = (Vec<Row>, Vec<Row>);

/// Decodes the rows, and the time of the database.
fn of((lock, claims): &Read) -> Result<(Option<LockRow>, Vec<ClaimRow>, i64), Failed> {
    let lock = lock.first().map(|row| lock_row(row, 0)).transpose()?;
    let mut now = None;
    let mut known = Vec::with_capacity(claims.len());
    for row in claims {
        now = now.or(column(row, 16)?);
        known.extend(claim_row(row, 0)?);
    }
    let now = now.ok_or_else(|| Failed::new(Fault::Internal, "the database did not return its time"))?;
    Ok((lock, known, now))
}

/// Locks the row of the name, and reads everything about the name.
async fn read_or_create(conn: &Conn, name: &str, begin: &str) -> Result<Read, Error> {
    let snapshot = read(conn, name, begin).await?;
    if !snapshot.0.is_empty() {
        return Ok(snapshot);
    }
    conn.query(&LOCK_NEW, &[&name]).await?;
    read(conn, name, "SELECT 1").await
}

/// Reads, in one round trip.
async fn read(conn: &Conn, name: &str, first: &str) -> Result<Read, Error> {
    let given: &[&(dyn ToSql + Sync)] = &[&name];
    // They are sent in this order.
    let (begun, lock, claims) =
        tokio::join!(biased; conn.run(first), conn.query(&LOCK, given), conn.query(&CLAIMS, given));
    // The first failure has the reason; the later statements fail because of it.
    begun?;
    Ok((lock?, claims?))
}

/// Writes and commits, in one round trip.
async fn write(conn: &Conn, name: &str, done: &Changes) -> Result<(), Failed> {
    if !done.changes() {
        return conn.run("COMMIT").await.map_err(|error| sort(&error, At::Before));
    }
    // A commit with notifications waits for a lock that is shared by the whole server.
    let waits = conn.keeps_session() && !done.notifications.is_empty();
    let patient = async { if waits { conn.run(PATIENCE).await } else { Ok(()) } };
    let (patient, wrote, ended) = tokio::join!(biased; patient, put(conn, name, done), conn.run("COMMIT"));
    patient.and(wrote).and(ended).map_err(|error| sort(&error, At::Commit))
}

async fn put(conn: &Conn, name: &str, done: &Changes) -> Result<(), Error> {
    let none = LockRow::default();
    let LockRow { holder, claims, ended, ended_upto, ended_until, .. } = done.lock.as_ref().unwrap_or(&none);
    let token = done.lock.as_ref().map(|lock| lock.token);
    let held = holder.as_ref();
    let id = held.map(|row| row.id.0.as_slice());
    let long = |of: fn(&ClaimRow) -> i64| held.map_or(0, of);
    let tokens = held.map_or(0, |row| row.tokens);
    let previous = held.map_or(0, |row| row.previous);
    let owner = held.map_or("", |row| row.owner.as_str());
    let client = held.map_or(0, |row| client_number(row.client));
    fn all<'a, T>(rows: &'a [ClaimRow], of: impl Fn(&'a ClaimRow) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    let put = &done.put;
    let dropped: Vec<&[u8]> = done.drop.iter().map(|id| id.0.as_slice()).collect();
    let channels: Vec<String> = done
        .notifications
        .iter()
        .map(|notification| notification_text::channel(notification.client))
        .collect();
    let payloads: Vec<String> = done.notifications.iter().map(notification_text::write).collect();
    let given: [&(dyn ToSql + Sync); 32] = [
        &name,
        &token,
        &id,
        &tokens,
        &previous,
        &owner,
        &long(|row| row.since),
        &long(|row| row.expires),
        &client,
        claims,
        ended,
        ended_upto,
        ended_until,
        &all(put, |row| row.id.0.as_slice()),
        &all(put, |row| row.stand),
        &all(put, |row| row.place),
        &all(put, |row| row.mode),
        &all(put, |row| row.count),
        &all(put, |row| row.most),
        &all(put, |row| row.token),
        &all(put, |row| row.tokens),
        &all(put, |row| row.previous),
        &all(put, |row| row.owner.as_str()),
        &all(put, |row| row.since),
        &all(put, |row| row.expires),
        &all(put, |row| row.claim_time),
        &all(put, |row| row.place_since),
        &all(put, |row| row.place_expires),
        &all(put, |row| client_number(row.client)),
        &dropped,
        &channels,
        &payloads,
    ];
    conn.query(&WRITE, &given).await.map(drop)
}

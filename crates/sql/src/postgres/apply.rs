//! A transaction on one name, under the lock of its row.

use leasehold_core::{Fault, Name};
use tokio_postgres::{Error, Row, types::ToSql};

use super::{
    conn::Conn,
    error::{Stage, classify, is_locked_out},
    notification_text,
    rows::{CLAIM_COLUMNS, claim_row, client_number, column, lock_row},
    statements::{CLAIMS, LOCK, LOCK_NEW, Sql, WRITE},
};
use crate::{
    database::{Failed, Timed},
    row::{ClaimRow, LockRow},
    step::{Changes, Snapshot, Verb},
};

/// Begins the first attempt of a transaction, under the lock timeout of the session. This timeout is longer than the
/// two round trips for which a transaction holds the row lock of a name.
const BEGIN: &str = "BEGIN";
/// Begins the second attempt of a transaction, after the first one exceeded the lock timeout of the session. A wait of
/// more than 3 s means that another session is stuck.
pub(super) const BEGIN_WITH_LONG_LOCK_TIMEOUT: &str = "BEGIN; SET LOCAL lock_timeout = '3s'";
/// Lets a transaction that has begun wait longer for locks.
pub(super) const LONG_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '3s'";
/// Begins a transaction in a session with unknown settings, behind a pooler.
const BEGIN_BEHIND_POOLER: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '3s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL statement_timeout = '5s'; \
    SET LOCAL search_path = pg_catalog, pg_temp";

/// All statements that a transaction may execute.
pub(super) const STATEMENTS: [&Sql; 4] = [&LOCK, &LOCK_NEW, &CLAIMS, &WRITE];

/// Runs one transaction: reads the rows of the name, applies the verb, writes the changes.
pub(crate) async fn apply(conn: &Conn, name: &Name, verb: &Verb) -> Result<Timed<Changes>, Failed> {
    let before_commit = |error: Error| classify(&error, Stage::BeforeCommit);
    conn.prepare(&STATEMENTS).await.map_err(before_commit)?;
    let mut snapshot = read_or_create(conn, name.as_str(), begin_statement(conn)).await;
    if conn.keeps_session() && snapshot.as_ref().is_err_and(is_locked_out) {
        conn.run("ROLLBACK").await.map_err(before_commit)?;
        snapshot = read_or_create(conn, name.as_str(), BEGIN_WITH_LONG_LOCK_TIMEOUT).await;
    }
    let (lock, claims, now) = decode(&snapshot.map_err(before_commit)?)?;
    let lock = lock.ok_or_else(|| Failed::new(Fault::Internal, "a row that was just created is missing"))?;
    let changes = Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims }.apply(verb)?;
    write_changes(conn, name.as_str(), &changes).await?;
    Ok(Timed { now, value: changes })
}

/// The statement that begins a transaction.
pub(super) fn begin_statement(conn: &Conn) -> &'static str {
    if conn.keeps_session() { BEGIN } else { BEGIN_BEHIND_POOLER }
}

/// The result of `lock.sql` (the row of the name, if it has one), and of `claims.sql` (the rows of its claims).
pub(super) type NameRows = (Vec<Row>, Vec<Row>);

/// Decodes the rows: the row of the name, its claims, and the time of the database.
pub(super) fn decode((lock, claims): &NameRows) -> Result<(Option<LockRow>, Vec<ClaimRow>, i64), Failed> {
    let lock = lock.first().map(|row| lock_row(row, 0)).transpose()?;
    let mut now = None;
    let mut claim_rows = Vec::with_capacity(claims.len());
    for row in claims {
        // The time of the database follows the columns of the claim.
        now = now.or(column(row, CLAIM_COLUMNS)?);
        claim_rows.extend(claim_row(row, 0)?);
    }
    let now = now.ok_or_else(|| Failed::new(Fault::Internal, "the database did not return its time"))?;
    Ok((lock, claim_rows, now))
}

/// Locks the row of the name, and reads everything about the name.
async fn read_or_create(conn: &Conn, name: &str, begin: &str) -> Result<NameRows, Error> {
    let snapshot = read_locked(conn, name, begin).await?;
    if !snapshot.0.is_empty() {
        return Ok(snapshot);
    }
    conn.query(&LOCK_NEW, &[&name]).await?;
    read_locked(conn, name, "SELECT 1").await
}

/// Executes `first_statement`, locks the row of the name, and reads everything about the name, in one round trip.
pub(super) async fn read_locked(conn: &Conn, name: &str, first_statement: &str) -> Result<NameRows, Error> {
    let parameters: &[&(dyn ToSql + Sync)] = &[&name];
    // `biased` polls the three futures in this order, so the statements are sent in this order.
    let begin = conn.run(first_statement);
    let (read_lock, read_claims) = (conn.query(&LOCK, parameters), conn.query(&CLAIMS, parameters));
    let (begun, lock, claims) = tokio::join!(biased; begin, read_lock, read_claims);
    // The first failure has the reason; the later statements fail because of it.
    begun?;
    Ok((lock?, claims?))
}

/// Writes and commits, in one round trip.
pub(super) async fn write_changes(conn: &Conn, name: &str, changes: &Changes) -> Result<(), Failed> {
    if !changes.has_row_changes() {
        return conn.run("COMMIT").await.map_err(|error| classify(&error, Stage::BeforeCommit));
    }
    commit_with(conn, name, async { Ok(()) }, Some(changes)).await
}

/// Executes the statement `first`, then writes the changes, if there are any, and commits: all in one round trip.
pub(super) async fn commit_with(
    conn: &Conn,
    name: &str,
    first: impl Future<Output = Result<(), Error>>,
    changes: Option<&Changes>,
) -> Result<(), Failed> {
    let changes = changes.filter(|changes| changes.has_row_changes());
    // A commit with notifications waits for a lock that is shared by the whole server.
    let may_wait = conn.keeps_session() && changes.is_some_and(|changes| !changes.notifications.is_empty());
    let timeout_set = async { if may_wait { conn.run(LONG_LOCK_TIMEOUT).await } else { Ok(()) } };
    let write = async {
        match changes {
            Some(changes) => execute_write(conn, name, changes).await,
            None => Ok(()),
        }
    };
    // `biased` polls the futures in this order, so the statements are sent in this order.
    let (timeout_set, first, written, committed) =
        tokio::join!(biased; timeout_set, first, write, conn.run("COMMIT"));
    timeout_set.and(first).and(written).and(committed).map_err(|error| classify(&error, Stage::Commit))
}

/// Executes `write.sql`, whose 32 parameters are in the order of its text.
pub(super) async fn execute_write(conn: &Conn, name: &str, changes: &Changes) -> Result<(), Error> {
    let no_row = LockRow::default();
    let LockRow { holder, claims, ended, ended_upto, ended_until, .. } =
        changes.lock.as_ref().unwrap_or(&no_row);
    let token = changes.lock.as_ref().map(|lock| lock.token);
    let holder_row = holder.as_ref();
    let id = holder_row.map(|row| row.id.0.as_slice());
    let number_or_zero = |field: fn(&ClaimRow) -> i64| holder_row.map_or(0, field);
    let tokens = holder_row.map_or(0, |row| row.tokens);
    let previous = holder_row.map_or(0, |row| row.previous);
    let owner = holder_row.map_or("", |row| row.owner.as_str());
    let client = holder_row.map_or(0, |row| client_number(row.client));
    fn column_values<'a, T>(rows: &'a [ClaimRow], field: impl Fn(&'a ClaimRow) -> T) -> Vec<T> {
        rows.iter().map(field).collect()
    }
    let changed_claims = &changes.changed_claims;
    let dropped_ids: Vec<&[u8]> = changes.deleted_claims.iter().map(|id| id.0.as_slice()).collect();
    let channels: Vec<String> = changes
        .notifications
        .iter()
        .map(|notification| notification_text::channel(notification.client))
        .collect();
    let payloads: Vec<String> = changes.notifications.iter().map(notification_text::write).collect();
    let parameters: [&(dyn ToSql + Sync); 32] = [
        &name,
        &token,
        &id,
        &tokens,
        &previous,
        &owner,
        &number_or_zero(|row| row.since),
        &number_or_zero(|row| row.expires),
        &client,
        claims,
        ended,
        ended_upto,
        ended_until,
        &column_values(changed_claims, |row| row.id.0.as_slice()),
        &column_values(changed_claims, |row| row.stand),
        &column_values(changed_claims, |row| row.place),
        &column_values(changed_claims, |row| row.mode),
        &column_values(changed_claims, |row| row.count),
        &column_values(changed_claims, |row| row.most),
        &column_values(changed_claims, |row| row.token),
        &column_values(changed_claims, |row| row.tokens),
        &column_values(changed_claims, |row| row.previous),
        &column_values(changed_claims, |row| row.owner.as_str()),
        &column_values(changed_claims, |row| row.since),
        &column_values(changed_claims, |row| row.expires),
        &column_values(changed_claims, |row| row.claim_time),
        &column_values(changed_claims, |row| row.place_since),
        &column_values(changed_claims, |row| row.place_expires),
        &column_values(changed_claims, |row| client_number(row.client)),
        &dropped_ids,
        &channels,
        &payloads,
    ];
    conn.query(&WRITE, &parameters).await.map(drop)
}

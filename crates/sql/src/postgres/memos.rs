//! The table of memos: reads a memo, and writes one in a transaction on its name.

use leasehold_core::{MemoWrite, Name, Written};
use tokio_postgres::{Error, Row, types::ToSql};

use super::{
    apply::{
        BEGIN_WITH_LONG_LOCK_TIMEOUT, NameRows, begin_statement, commit_with, decode, read_locked,
        write_changes,
    },
    conn::Conn,
    error::{Stage, classify, is_locked_out},
    rows::{LOCK_COLUMNS, claim_row, column, lock_row},
    statements::{CLAIMS, LOCK, MEMO_HEAD, MEMO_PUT, MEMO_READ, Sql, WRITE},
};
use crate::{
    database::{Failed, Timed},
    memo::{MemoRow, MemoStep, MemoWritten, StoredHead, StoredMemo},
    step::Snapshot,
};

/// All statements that a transaction may execute.
const STATEMENTS: [&Sql; 5] = [&LOCK, &CLAIMS, &WRITE, &MEMO_HEAD, &MEMO_PUT];

/// The first column of the row of the name in `memo_read.sql`, behind the memo, the time, and whether there is a row.
const FIRST_LOCK_COLUMN: usize = 10;
/// The first column of the row of the claim in `memo_read.sql`.
const FIRST_CLAIM_COLUMN: usize = FIRST_LOCK_COLUMN + LOCK_COLUMNS;

/// The memo of a name.
pub(super) async fn read(conn: &Conn, name: &Name) -> Result<Option<Timed<StoredMemo>>, Failed> {
    let rows = conn.query_standalone(&MEMO_READ, &[&name.as_str()]).await;
    let rows = rows.map_err(|error| classify(&error, Stage::BeforeCommit))?;
    let Some(columns) = rows.first() else { return Ok(None) };
    let row = MemoRow {
        kind: column(columns, 0)?,
        content: column(columns, 1)?,
        print: column(columns, 2)?,
        id: column(columns, 3)?,
        number: column(columns, 4)?,
        lineage: column(columns, 5)?,
        token: column(columns, 6)?,
        ends: column(columns, 7)?,
    };
    let (now, has_lock): (i64, bool) = (column(columns, 8)?, column(columns, 9)?);
    let mut is_held = false;
    if let Some(id) = row.claim().filter(|_| has_lock) {
        let lock = lock_row(columns, FIRST_LOCK_COLUMN)?;
        let claims = claim_row(columns, FIRST_CLAIM_COLUMN)?.into_iter().collect();
        let snapshot = Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims };
        is_held = snapshot.is_held_by(id, None);
    }
    Ok(Some(Timed { now, value: StoredMemo { row, is_held } }))
}

/// Writes a memo under a hold, in one transaction: one round trip to read, one to write.
pub(super) async fn write(conn: &Conn, write: &MemoWrite) -> Result<Timed<MemoWritten>, Failed> {
    let before_commit = |error: Error| classify(&error, Stage::BeforeCommit);
    conn.prepare(&STATEMENTS).await.map_err(before_commit)?;
    let name = write.name.as_str();
    let mut read = read_rows(conn, name, begin_statement(conn)).await;
    if conn.keeps_session() && read.as_ref().is_err_and(is_locked_out) {
        conn.run("ROLLBACK").await.map_err(before_commit)?;
        read = read_rows(conn, name, BEGIN_WITH_LONG_LOCK_TIMEOUT).await;
    }
    let (rows, stored) = read.map_err(before_commit)?;
    let (lock, claims, now) = decode(&rows)?;
    let Some(lock) = lock else {
        // A name without a row is not held.
        conn.run("COMMIT").await.map_err(before_commit)?;
        let value = MemoWritten { written: Ok(Written::Overtaken), changes: None };
        return Ok(Timed { now, value });
    };
    let stored = stored.first().map(head).transpose()?;
    let snapshot = Snapshot { now, floor: now, lineage: conn.lineage(), lock, claims };
    let MemoStep { written, row, changes } = snapshot.write_memo(write, stored.as_ref())?;
    match &row {
        Some(row) => commit_with(conn, name, put(conn, name, row), changes.as_ref()).await?,
        None => match &changes {
            Some(changes) => write_changes(conn, name, changes).await?,
            None => conn.run("COMMIT").await.map_err(before_commit)?,
        },
    }
    Ok(Timed { now, value: MemoWritten { written, changes } })
}

/// Executes `first_statement`, locks the row of the name, and reads everything about the name and the head of its memo,
/// in one round trip.
async fn read_rows(conn: &Conn, name: &str, first_statement: &str) -> Result<(NameRows, Vec<Row>), Error> {
    let parameters: &[&(dyn ToSql + Sync)] = &[&name];
    let (rows, head) =
        tokio::join!(biased; read_locked(conn, name, first_statement), conn.query(&MEMO_HEAD, parameters));
    // The first failure has the reason.
    let rows = rows?;
    Ok((rows, head?))
}

fn head(row: &Row) -> Result<StoredHead, Failed> {
    Ok(StoredHead {
        kind: column(row, 0)?,
        id: column(row, 1)?,
        number: column(row, 2)?,
        ends: column(row, 3)?,
    })
}

async fn put(conn: &Conn, name: &str, row: &MemoRow) -> Result<(), Error> {
    let parameters: [&(dyn ToSql + Sync); 9] = [
        &name,
        &row.kind,
        &row.id,
        &row.number,
        &row.lineage,
        &row.token,
        &row.print,
        &row.ends,
        &row.content,
    ];
    conn.query(&MEMO_PUT, &parameters).await.map(drop)
}

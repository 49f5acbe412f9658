//! Reads and writes the table of memos.

use leasehold_core::{MemoWrite, Name};
use rusqlite::{Error, OptionalExtension, Row, params};

use super::{error::before_commit, transaction::Scope};
use crate::{
    database::Failed,
    memo::{MAX_SWEPT_MEMOS, MemoRow, StoredHead},
    row::duration_micros,
    runtime::wall_micros,
};

/// Reads the memo of a name.
const SELECT_MEMO: &str =
    "SELECT kind, content, print, id, number, lineage, token, ends FROM leasehold_memo WHERE name = ?1";
/// Reads the parts that decide about a write.
const SELECT_HEAD: &str = "SELECT kind, id, number, ends FROM leasehold_memo WHERE name = ?1";
/// Writes a memo.
const PUT_MEMO: &str = "INSERT INTO leasehold_memo (name, kind, id, number, lineage, token, print, ends, keep, day_ends, content) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
    ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, id = excluded.id, number = excluded.number, \
    lineage = excluded.lineage, token = excluded.token, print = excluded.print, ends = excluded.ends, \
    keep = excluded.keep, day_ends = excluded.day_ends, content = excluded.content";
/// Finds memos that have ended, except those whose claim still holds the name.
const ENDED: &str = "SELECT m.rowid FROM leasehold_memo AS m WHERE m.ends <= ?1 \
    AND NOT EXISTS (SELECT 1 FROM leasehold_lock AS l WHERE l.name = m.name AND l.holder = m.id AND l.expires > ?1) \
    AND NOT EXISTS (SELECT 1 FROM leasehold_claim AS c WHERE c.name = m.name AND c.id = m.id AND c.stand < 2 AND c.expires > ?1)";

/// The row of a memo.
pub(super) fn read(scope: &Scope<'_>, name: &Name) -> Result<Option<MemoRow>, Failed> {
    let row = |row: &Row<'_>| {
        Ok(MemoRow {
            kind: row.get(0)?,
            content: row.get(1)?,
            print: row.get(2)?,
            id: row.get(3)?,
            number: row.get(4)?,
            lineage: row.get(5)?,
            token: row.get(6)?,
            ends: row.get(7)?,
        })
    };
    let connection = &scope.file.connection;
    let found = connection
        .prepare_cached(SELECT_MEMO)
        .and_then(|mut select| select.query_row([name.as_str()], row).optional());
    match found {
        Err(error) if is_missing_table(&error) => Ok(None),
        found => found.map_err(before_commit),
    }
}

/// The parts of a stored memo that decide about a write.
pub(super) fn read_head(scope: &Scope<'_>, name: &Name) -> Result<Option<StoredHead>, Failed> {
    let head = |row: &Row<'_>| {
        Ok(StoredHead { kind: row.get(0)?, id: row.get(1)?, number: row.get(2)?, ends: row.get(3)? })
    };
    let mut select = scope.file.connection.prepare_cached(SELECT_HEAD).map_err(before_commit)?;
    select.query_row([name.as_str()], head).optional().map_err(before_commit)
}

/// Stores a memo.
pub(super) fn put(scope: &Scope<'_>, write: &MemoWrite, row: &MemoRow) -> Result<(), Failed> {
    let keep = duration_micros(write.memo.keep());
    let mut put = scope.file.connection.prepare_cached(PUT_MEMO).map_err(before_commit)?;
    let values = params![
        write.name.as_str(),
        row.kind,
        row.id,
        row.number,
        row.lineage,
        row.token,
        row.print,
        row.ends,
        keep,
        wall_micros().saturating_add(keep),
        row.content,
    ];
    put.execute(values).map(drop).map_err(before_commit)
}

/// Whether there is a memo to delete.
pub(super) fn any_ended(scope: &Scope<'_>) -> Result<bool, Failed> {
    let found = scope
        .file
        .connection
        .prepare_cached(&format!("SELECT EXISTS ({ENDED})"))
        .and_then(|mut select| select.query_row([scope.now], |row| row.get(0)));
    match found {
        Err(error) if is_missing_table(&error) => Ok(false),
        found => found.map_err(before_commit),
    }
}

/// Deletes a part of the memos that have ended, and returns how many.
pub(super) fn delete_ended(scope: &Scope<'_>) -> Result<usize, Failed> {
    let text = format!("DELETE FROM leasehold_memo WHERE rowid IN ({ENDED} LIMIT {MAX_SWEPT_MEMOS})");
    let mut delete = scope.file.connection.prepare_cached(&text).map_err(before_commit)?;
    delete.execute([scope.now]).map_err(before_commit)
}

/// Whether the tables were made by an earlier version of leasehold, and were opened only to look.
fn is_missing_table(error: &Error) -> bool {
    error.to_string().contains("no such table: leasehold_memo")
}

//! The table of memos: reads a memo, and writes one in a transaction on its name.

use leasehold_core::{Fault, Lineage, MemoWrite, Written};

use super::{
    apply::{READ_STATEMENTS, change_statements, snapshot},
    conn::{Conn, ResultSet},
    error::{Commits, RequestError},
    rows::ColumnReader,
    statements::{MEMO_HEAD, MEMO_PUT, MEMO_SWEEP, READ},
    text::{bytes_literal, comma_list, text_literal},
};
use crate::{
    database::{Failed, Timed},
    memo::{MemoRow, MemoStep, MemoWritten, StoredHead, StoredMemo},
    step::Snapshot,
};

/// Decodes the result of `memo_read.sql`, from tables of this lineage.
pub(super) fn stored(sets: &[ResultSet], lineage: Lineage) -> Result<Option<Timed<StoredMemo>>, Failed> {
    let Some(row) = sets.iter().flat_map(|set| &set.rows).next() else { return Ok(None) };
    let mut columns = ColumnReader::new(row);
    let row = MemoRow {
        kind: columns.text()?,
        content: columns.next()?,
        print: columns.next()?,
        id: columns.next()?,
        number: columns.next()?,
        lineage: columns.text()?,
        token: columns.next()?,
        ends: columns.next()?,
    };
    let (now, has_lock): (i64, bool) = (columns.next()?, columns.next()?);
    let mut is_held = false;
    if let Some(id) = row.claim().filter(|_| has_lock) {
        let (lock, claims) = (columns.lock()?, columns.claim()?.into_iter().collect());
        is_held = Snapshot { now, floor: now, lineage, lock, claims }.is_held_by(id, None);
    }
    Ok(Some(Timed { now, value: StoredMemo { row, is_held } }))
}

/// The statement that deletes the memos in the result of `memo_ended.sql`, and their number; `None` if there are none.
pub(super) fn deletion(sets: &[ResultSet]) -> Result<Option<(String, usize)>, Failed> {
    let (mut names, mut memos) = (Vec::new(), Vec::new());
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = ColumnReader::new(row);
        let (name, id): (Vec<u8>, Vec<u8>) = (columns.next()?, columns.next()?);
        let name = bytes_literal(&name);
        memos.push(format!("({name}, {})", bytes_literal(&id)));
        names.push(name);
    }
    if names.is_empty() {
        return Ok(None);
    }
    let count = names.len();
    let (names, memos) = (comma_list(names.into_iter()), comma_list(memos.into_iter()));
    Ok(Some((MEMO_SWEEP.with_values(&[("names", &names), ("memos", &memos)]), count)))
}

/// Writes a memo under a hold, in one transaction: one round trip to read, one to write.
pub(super) async fn write(conn: &mut Conn, write: &MemoWrite) -> Result<Timed<MemoWritten>, RequestError> {
    let name_literal = bytes_literal(write.name.as_str().as_bytes());
    let name_parameter = [("name", name_literal.as_str())];
    let (read, head) = (READ.with_values(&name_parameter), MEMO_HEAD.with_values(&name_parameter));
    let text = format!("{}; {read}; {head}", conn.begin_statements());
    let never = |execute_error: super::error::ExecuteError| RequestError::of(&execute_error, Commits::Never);
    let sets = conn.execute(&text).await.map_err(never)?;
    let sets = sets.get(conn.begin_count()..).unwrap_or_default();
    let snapshot = snapshot(conn, sets.get(..READ_STATEMENTS).unwrap_or_default())?;
    let Some(snapshot) = snapshot else {
        // A name without a row is not held.
        let now = time(sets)?;
        let end = conn.commit_statements().to_owned();
        conn.execute(&end).await.map_err(never)?;
        return Ok(Timed { now, value: MemoWritten { written: Ok(Written::Overtaken), changes: None } });
    };
    let stored = sets.get(READ_STATEMENTS..).unwrap_or_default().iter().flat_map(|set| &set.rows).next();
    let stored = stored.map(stored_head).transpose()?;
    let MemoStep { written, row, changes } = snapshot.write_memo(write, stored.as_ref())?;
    let mut statements: Vec<String> = row.iter().map(|row| put(&name_literal, row)).collect();
    if let Some(changes) = &changes {
        statements.extend(change_statements(&name_literal, write.name.as_str(), changes));
    }
    let commits = if statements.is_empty() { Commits::Never } else { Commits::At(statements.len()) };
    statements.push(conn.commit_statements().to_owned());
    conn.execute(&statements.join("; "))
        .await
        .map_err(|execute_error| RequestError::of(&execute_error, commits))?;
    Ok(Timed { now: snapshot.now, value: MemoWritten { written, changes } })
}

/// The time of the database, the last result of `read.sql`.
fn time(sets: &[ResultSet]) -> Result<i64, Failed> {
    let row = sets.get(READ_STATEMENTS - 1).and_then(|set| set.rows.first());
    let row = row.ok_or_else(|| Failed::new(Fault::Internal, "the database did not return its time"))?;
    ColumnReader::new(row).next()
}

fn stored_head(row: &mysql_async::Row) -> Result<StoredHead, Failed> {
    let mut columns = ColumnReader::new(row);
    Ok(StoredHead {
        kind: columns.text()?,
        id: columns.next()?,
        number: columns.next()?,
        ends: columns.next()?,
    })
}

/// The statement that stores a memo.
fn put(name_literal: &str, row: &MemoRow) -> String {
    MEMO_PUT.with_values(&[
        ("name", name_literal),
        ("kind", &text_literal(&row.kind)),
        ("id", &bytes_literal(&row.id)),
        ("number", &row.number.to_string()),
        ("lineage", &text_literal(&row.lineage)),
        ("token", &row.token.to_string()),
        ("print", &row.print.as_ref().map_or_else(|| "NULL".to_owned(), |print| bytes_literal(print))),
        ("ends", &row.ends.to_string()),
        ("content", &bytes_literal(&row.content)),
    ])
}

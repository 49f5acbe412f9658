//! Records on MySQL and MariaDB.
//!
//! One text of four statements begins a turn. The first creates the row of the key or locks the one that is there, and
//! waits for a transaction that has it. The second reads, as it is now, when the record ends. The third reads the
//! record in the snapshot of the transaction: if the two differ, the transaction has read data from before the commit
//! of that record, and must be run again. The last marks a record that has ended. A read before the first statement
//! would make the snapshot too early. Keys and results are written as hexadecimal digits, so that none can be taken for
//! SQL.

use super::{Call, Found, table::MAX_DELETED};
use crate::row_lock::{
    RowLockErrorKind, RowTransaction,
    error::Failure,
    mysql::{limited, literal, reset_limit},
};

/// The time in microseconds, whatever the time zone of the session: that of the begin of the statement.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
const RECORD: i64 = 1;

pub(super) async fn begin<T: RowTransaction>(transaction: &mut T, call: &Call) -> Result<Found, Failure> {
    let (table, key) = (call.table.name(), literal(&call.key));
    let text = format!(
        "INSERT INTO {table} (name, ends, content) VALUES ({key}, 0, '') ON DUPLICATE KEY UPDATE ends = {table}.ends; \
         SELECT ends INTO @leasehold_ends FROM {table} WHERE name = {key} FOR UPDATE; \
         SELECT CAST(ends > {NOW} AS SIGNED), digest, IF(ends > {NOW}, content, NULL) FROM {table} \
         WHERE name = {key} AND ends = @leasehold_ends; \
         UPDATE {table} SET ends = 0 WHERE name = {key} AND ends <= {NOW}"
    );
    let read = match call.wait {
        None => transaction.records(&text, &[], &[]).await,
        Some(limit) => {
            let read = transaction.records(&limited(&text, limit), &[], &[]).await;
            reset_limit(transaction, read.as_ref().err()).await?;
            read
        }
    };
    match read?.into_iter().next() {
        Some((RECORD, digest, content)) => Ok(Found::Record { digest, content: content.unwrap_or_default() }),
        Some(_) => Ok(Found::Turn),
        None => {
            let message =
                "the transaction has read data from before another transaction with this key committed";
            Err(Failure::new(RowLockErrorKind::Conflict, message))
        }
    }
}

pub(super) async fn store<T: RowTransaction>(
    transaction: &mut T,
    call: &Call,
    bytes: &[u8],
) -> Result<bool, Failure> {
    let text = format!(
        "UPDATE {} SET ends = {NOW} + {}, digest = {}, content = {} WHERE name = {} AND ends = 0; \
         SELECT CAST(ROW_COUNT() AS SIGNED), NULL, NULL",
        call.table.name(),
        call.keep_micros(),
        call.digest.map_or_else(|| "NULL".to_owned(), literal),
        literal(bytes),
        literal(&call.key),
    );
    Ok(transaction.records(&text, &[], &[]).await?.first().is_some_and(|(changed, ..)| *changed > 0))
}

/// Finds ended records without a lock, locks those of them that no transaction uses, and deletes these. To find and
/// delete by one statement would lock the rows of running transactions, and the gaps between them.
pub(super) async fn delete_ended<T: RowTransaction>(
    transaction: &mut T,
    table: &str,
) -> Result<usize, Failure> {
    let columns = "SELECT CAST(0 AS SIGNED), name, NULL";
    let find = format!("{columns} FROM {table} WHERE ends <= {NOW} ORDER BY ends LIMIT {MAX_DELETED}");
    let Some(ended) = names(transaction, &find).await? else { return Ok(0) };
    let lock = format!(
        "{columns} FROM {table} FORCE INDEX (PRIMARY) WHERE name IN ({ended}) AND ends <= {NOW} \
         FOR UPDATE SKIP LOCKED"
    );
    let Some(locked) = names(transaction, &lock).await? else { return Ok(0) };
    let delete = format!(
        "DELETE FROM {table} WHERE name IN ({locked}); SELECT CAST(ROW_COUNT() AS SIGNED), NULL, NULL"
    );
    let deleted = transaction.records(&delete, &[], &[]).await?;
    Ok(deleted.first().map_or(0, |(count, ..)| usize::try_from(*count).unwrap_or(0)))
}

/// The names that a query returns, as literals with commas between them; `None` if there are none.
async fn names<T: RowTransaction>(transaction: &mut T, query: &str) -> Result<Option<String>, Failure> {
    let rows = transaction.records(query, &[], &[]).await?;
    let names: Vec<_> = rows.into_iter().filter_map(|(_, name, _)| name.map(literal)).collect();
    Ok((!names.is_empty()).then(|| names.join(", ")))
}

//! Records on SQLite, where the lock of one row is the right to write the whole file.
//!
//! The first statement takes that right, and waits for it, before anything is read: so a transaction that the call
//! begins never has an old snapshot.

use super::{Call, Found, MAX_LOOKS, always_ended, table::MAX_DELETED};
use crate::row_lock::{
    RowTransaction,
    error::Failure,
    sqlite::{reset_busy_timeout, set_busy_timeout, whole_milliseconds},
};

/// The time in microseconds, in steps of a millisecond: that of the statement, after the wait.
const NOW: &str = "(CAST((julianday('now') - 2440587.5) * 86400000 AS integer) * 1000)";

pub(super) async fn begin<T: RowTransaction>(transaction: &mut T, call: &Call) -> Result<Found, Failure> {
    let Some(limit) = call.wait else { return take_turn(transaction, call).await };
    let before = set_busy_timeout(transaction, whole_milliseconds(limit)).await?;
    let found = take_turn(transaction, call).await;
    reset_busy_timeout(transaction, before).await?;
    found
}

async fn take_turn<T: RowTransaction>(transaction: &mut T, call: &Call) -> Result<Found, Failure> {
    let (table, key) = (call.table.name(), std::slice::from_ref(&call.key));
    let take = format!(
        "INSERT INTO {table} AS held (name, ends, content) VALUES (?1, 0, x'') \
         ON CONFLICT (name) DO UPDATE SET ends = 0 WHERE held.ends <= {NOW} RETURNING 0, NULL, NULL"
    );
    let read = format!("SELECT 1, digest, content FROM {table} WHERE name = ?1 AND ends > {NOW}");
    for _ in 0..MAX_LOOKS {
        if !transaction.records(&take, key, &[]).await?.is_empty() {
            return Ok(Found::Turn);
        }
        if let Some((_, digest, content)) = transaction.records(&read, key, &[]).await?.into_iter().next() {
            return Ok(Found::Record { digest, content: content.unwrap_or_default() });
        }
    }
    Err(always_ended())
}

pub(super) async fn store<T: RowTransaction>(
    transaction: &mut T,
    call: &Call,
    bytes: &[u8],
) -> Result<bool, Failure> {
    let text = format!(
        "UPDATE {} SET ends = {NOW} + CAST(?2 AS integer), digest = nullif(?3, x''), content = ?4 \
         WHERE name = ?1 AND ends = 0 RETURNING 0, NULL, NULL",
        call.table.name()
    );
    let digest: &[u8] = call.digest.as_ref().map_or(&[], |digest| digest);
    let texts = [call.key.clone(), call.keep_micros().to_string()];
    Ok(!transaction.records(&text, &texts, &[digest, bytes]).await?.is_empty())
}

pub(super) async fn delete_ended<T: RowTransaction>(
    transaction: &mut T,
    table: &str,
) -> Result<usize, Failure> {
    let text = format!(
        "DELETE FROM {table} WHERE name IN (SELECT name FROM {table} WHERE ends <= {NOW} \
         ORDER BY ends LIMIT {MAX_DELETED}) RETURNING 0, NULL, NULL"
    );
    Ok(transaction.records(&text, &[], &[]).await?.len())
}

//! Records on PostgreSQL.
//!
//! A call first looks for a record: that locks nothing, so repeats do not wait for each other. Without a record, one
//! statement creates the row or takes the one that has ended, and waits for a transaction that has it. It locks the row
//! also if that transaction stored a record. Because it writes the row, a transaction with an older snapshot fails with
//! SQLSTATE 40001.

use super::{Call, Found, MAX_LOOKS, always_ended, table::MAX_DELETED};
use crate::row_lock::{
    RowLockErrorKind, RowTransaction,
    error::Failure,
    postgres::{reset_lock_timeout, set_lock_timeout},
};

/// The time in microseconds, as it is when the server evaluates the expression: after a wait.
const NOW: &str = "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint";
/// An answer without a record.
const NOTHING: &str = "0::bigint, NULL::bytea, NULL::bytea";
/// The kinds of answers of a look, besides none.
const RECORD: i64 = 1;
const NO_RECORD_AND_WRITTEN: i64 = 2;

pub(super) async fn begin<T: RowTransaction>(transaction: &mut T, call: &Call) -> Result<Found, Failure> {
    for number in 0..MAX_LOOKS {
        // After the first look this call itself may have written: it locks a row.
        let is_first = call.is_first && number == 0;
        if let Some(record) = look(transaction, call, is_first).await? {
            return Ok(record);
        }
        if take_turn(transaction, call).await? {
            return Ok(Found::Turn);
        }
        // Another transaction has stored a record since the look.
    }
    Err(always_ended())
}

/// The record of the key, if there is one. Without a record, fails if `is_first` and the transaction has written.
async fn look<T: RowTransaction>(
    transaction: &mut T,
    call: &Call,
    is_first: bool,
) -> Result<Option<Found>, Failure> {
    let table = call.table.name();
    let text = format!(
        "SELECT CASE WHEN held.name IS NOT NULL THEN {RECORD} WHEN begun.is_written THEN {NO_RECORD_AND_WRITTEN} \
         ELSE 0 END::bigint, held.digest, held.content \
         FROM (SELECT pg_catalog.txid_current_if_assigned() IS NOT NULL AS is_written) AS begun \
         LEFT JOIN {table} AS held ON held.name = $1::text AND held.ends > {NOW}"
    );
    let rows = transaction.records(&text, std::slice::from_ref(&call.key), &[]).await?;
    match rows.into_iter().next() {
        Some((RECORD, digest, content)) => {
            Ok(Some(Found::Record { digest, content: content.unwrap_or_default() }))
        }
        Some((NO_RECORD_AND_WRITTEN, ..)) if is_first => {
            Err(Failure::new(RowLockErrorKind::NotFirst, "the transaction has written before"))
        }
        _ => Ok(None),
    }
}

/// Whether this transaction has the turn now. If not, there is a record.
async fn take_turn<T: RowTransaction>(transaction: &mut T, call: &Call) -> Result<bool, Failure> {
    let before = match call.wait {
        Some(limit) => Some(set_lock_timeout(transaction, limit).await?),
        None => None,
    };
    let table = call.table.name();
    // The row is locked also if the condition is false.
    let text = format!(
        "INSERT INTO {table} AS held (name, ends, content) VALUES ($1::text, 0, '') \
         ON CONFLICT (name) DO UPDATE SET ends = 0 WHERE held.ends <= {NOW} RETURNING {NOTHING}"
    );
    let rows = transaction.records(&text, std::slice::from_ref(&call.key), &[]).await?;
    if let Some(before) = before {
        reset_lock_timeout(transaction, before).await?;
    }
    Ok(!rows.is_empty())
}

pub(super) async fn store<T: RowTransaction>(
    transaction: &mut T,
    call: &Call,
    bytes: &[u8],
) -> Result<bool, Failure> {
    let text = format!(
        "UPDATE {} SET ends = {NOW} + $2::text::bigint, digest = nullif($3::bytea, ''), content = $4::bytea \
         WHERE name = $1::text AND ends = 0 RETURNING {NOTHING}",
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
         ORDER BY ends LIMIT {MAX_DELETED} FOR UPDATE SKIP LOCKED) RETURNING {NOTHING}"
    );
    Ok(transaction.records(&text, &[], &[]).await?.len())
}

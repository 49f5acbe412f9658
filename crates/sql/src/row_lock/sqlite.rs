//! Row locks of SQLite, where the lock of one row is the right to write the whole file.
//!
//! One statement creates the rows that are missing and raises all tokens. If the transaction has read before and
//! another one has written since, SQLite refuses the statement (`SQLITE_BUSY_SNAPSHOT`), so an old snapshot is never
//! used.

use std::time::Duration;

use super::{
    RowLock, RowLockErrorKind, error::Failure, numbered::Numbered, request::Waiting,
    transaction::RowTransaction,
};

/// How long the connection waits for another one, in milliseconds.
const BUSY_TIMEOUT: &str = "SELECT 1, timeout FROM pragma_busy_timeout";

pub(super) async fn lock<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
) -> Result<Vec<(i64, i64)>, Failure> {
    match lock.waiting {
        Waiting::AsTheServer => raise(transaction, lock).await,
        Waiting::AtMost(limit) => raise_within(transaction, lock, whole_milliseconds(limit)).await,
        Waiting::Not | Waiting::Skip => match raise_within(transaction, lock, 0).await {
            Err(failure) if failure.kind == RowLockErrorKind::TimedOut => {
                Err(Failure { kind: RowLockErrorKind::Taken, ..failure })
            }
            tokens => tokens,
        },
    }
}

/// Rounded up.
pub(super) fn whole_milliseconds(limit: Duration) -> i64 {
    i64::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

async fn raise<T: RowTransaction>(transaction: &mut T, lock: &RowLock) -> Result<Vec<(i64, i64)>, Failure> {
    let (table, names) = (lock.table_name(), Numbered::new('?', "", lock.names().len()));
    // Without the condition SQLite takes ON for the condition of a join.
    let text = format!(
        "INSERT INTO {table} AS held (name, token) SELECT name, 1 FROM ({}) WHERE true \
         ON CONFLICT (name) DO UPDATE SET token = held.token + 1 RETURNING {}, token",
        names.places(),
        names.place_of("name"),
    );
    transaction.rows(&text, lock.names()).await
}

async fn raise_within<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    milliseconds: i64,
) -> Result<Vec<(i64, i64)>, Failure> {
    let before = set_busy_timeout(transaction, milliseconds).await?;
    let tokens = raise(transaction, lock).await;
    reset_busy_timeout(transaction, before).await?;
    tokens
}

/// Limits the wait for other connections, in milliseconds. Returns the limit before.
pub(super) async fn set_busy_timeout<T: RowTransaction>(
    transaction: &mut T,
    milliseconds: i64,
) -> Result<i64, Failure> {
    let before = transaction.rows(BUSY_TIMEOUT, &[]).await?.first().map_or(0, |(_, before)| *before);
    reset_busy_timeout(transaction, milliseconds).await?;
    Ok(before)
}

pub(super) async fn reset_busy_timeout<T: RowTransaction>(
    transaction: &mut T,
    milliseconds: i64,
) -> Result<(), Failure> {
    transaction.rows(&format!("PRAGMA busy_timeout = {milliseconds}"), &[]).await.map(drop)
}

//! Row locks of SQLite, where the lock of one row is the right to write the whole file.
//!
//! One statement creates the rows that are missing and raises all tokens. If the transaction has read before and
//! another one has written since, SQLite refuses the statement (`SQLITE_BUSY_SNAPSHOT`), so an old snapshot is never
//! used.

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
        Waiting::AtMost(limit) => {
            let milliseconds = i64::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
            raise_within(transaction, lock, milliseconds).await
        }
        Waiting::Not | Waiting::Skip => match raise_within(transaction, lock, 0).await {
            Err(failure) if failure.kind == RowLockErrorKind::TimedOut => {
                Err(Failure { kind: RowLockErrorKind::Taken, ..failure })
            }
            tokens => tokens,
        },
    }
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
    let before = transaction.rows(BUSY_TIMEOUT, &[]).await?.first().map_or(0, |(_, before)| *before);
    let set = |milliseconds: i64| format!("PRAGMA busy_timeout = {milliseconds}");
    transaction.rows(&set(milliseconds), &[]).await?;
    let tokens = raise(transaction, lock).await;
    transaction.rows(&set(before), &[]).await?;
    tokens
}

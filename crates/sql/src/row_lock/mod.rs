//! Locks that live exactly as long as a transaction of your own program.
//!
//! [`row_lock`] locks a row per name in a transaction that the program began with its own client library. The row has
//! a token, which the same statement raises. A commit or a rollback of the transaction ends the lock. There is no lease
//! and no background work, so nothing of the lock outlives the transaction: if the connection breaks, the server rolls
//! the transaction back, and its writes are undone together with the lock.
//!
//! [`once_in`] is built on the same adapters: it records in the transaction that the work of a key was done.

mod error;
mod mysql;
#[cfg(feature = "mysql_async")]
mod mysql_async;
mod numbered;
mod once;
mod postgres;
mod request;
mod sqlite;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;
mod transaction;

pub use self::{
    error::{RowLockError, RowLockErrorKind},
    once::{OnceIn, OnceInCall, OnceInTable, OnceInTurn, once_in},
    request::{RowHolds, RowLock},
    transaction::RowTransaction,
};
use leasehold_core::BoxFuture;

use self::error::Failure;
use crate::Dialect;

/// Locks names until the end of a transaction of yours: `tokio_postgres::Transaction` (feature `tokio-postgres`),
/// `sqlx::Transaction` of PostgreSQL, MySQL, MariaDB or SQLite (feature `sqlx`), or `mysql_async::Transaction` (feature
/// `mysql_async`). A connection is no transaction and is not accepted, because the lock would end with the call.
/// Returns the token of each name.
///
/// Call it before every other statement of the transaction: what the transaction reads after the call is then at least
/// as new as the last commit under the same name. The lock excludes only transactions that lock the same name in the
/// same table. The table must exist: [`RowLock::schema`] has the statement that creates it.
///
/// - The lock waits as long as the server lets it wait ([`RowLock::wait`] sets a limit), or not at all
///   ([`RowLock::no_wait`], [`RowLock::skip_locked`]).
/// - A rollback takes the new token back, and the next transaction gets the same number. So a token counts only
///   together with the commit: use it in the same transaction (in a column of a row, as a fence), and show it to
///   nobody else before the commit.
/// - A commit that gets no answer has an unknown outcome, as every commit has. To find out, store the token in a row of
///   yours in the same transaction; then lock the name again, which waits until the server has ended the earlier
///   transaction, and read that row.
/// - A lock that was made after a savepoint ends when the transaction is rolled back to that savepoint.
/// - On SQLite a transaction that writes excludes every other one of the same file, whatever their names are. Begin
///   such a transaction by `BEGIN IMMEDIATE`.
///
/// # Errors
/// [`RowLockErrorKind`] lists them. After an error roll the transaction back; if the error
/// [is retryable](RowLockError::is_retryable), run the whole transaction again.
///
/// # Cancel safety
/// If the future is dropped, it is unknown whether the names are locked: roll the transaction back. On SQLite and MySQL
/// also close the connection after a call with [`RowLock::wait`], [`RowLock::no_wait`] or [`RowLock::skip_locked`]:
/// these change a time limit of the connection for the call, and a dropped future may not change it back. PostgreSQL
/// and MariaDB limit only the transaction or the statement.
pub fn row_lock<'a, T: RowTransaction>(
    transaction: &'a mut T,
    lock: impl Into<RowLock>,
) -> BoxFuture<'a, Result<RowHolds, RowLockError>> {
    let lock = lock.into();
    // Boxed, because the compiler cannot see that a future that contains the generic code for `sqlx` is `Send`.
    Box::pin(async move {
        lock.check()?;
        let dialect = transaction.dialect()?;
        let locked = match dialect {
            Dialect::Postgres => postgres::lock(transaction, &lock).await,
            Dialect::Mysql => mysql::lock(transaction, &lock).await,
            Dialect::Sqlite => sqlite::lock(transaction, &lock).await,
        };
        // No name is free: the caller must not take an empty result for a lock.
        let locked =
            locked.and_then(|tokens| if tokens.is_empty() { Err(Failure::taken()) } else { Ok(tokens) });
        let tokens = locked.map_err(|failure| RowLockError::of(failure, &lock.subject(dialect)))?;
        lock.holds(tokens)
    })
}

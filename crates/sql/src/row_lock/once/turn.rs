//! The turn of a transaction to do the work of a key, or the result of the one that did it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use leasehold_core::{BoxFuture, MAX_MEMO_BYTES};

use super::{Call, mysql, postgres, sqlite};
use crate::{
    Dialect,
    row_lock::{RowLockError, RowLockErrorKind, RowTransaction, error::Failure},
};

/// What [`once_in`](super::once_in) returns.
#[must_use = "the transaction has the turn, or must not do the work again"]
pub enum OnceIn<'a, T> {
    /// Nobody has done the work: this transaction does it, and ends with [`OnceInTurn::done`].
    Run(OnceInTurn<'a, T>),
    /// A transaction has done the work and was committed: its result.
    Done(Vec<u8>),
}

/// The turn to do the work of a key. It is the transaction too: `&mut **turn` with `sqlx`, `turn.execute(..)` with
/// `tokio-postgres` and `mysql_async`.
///
/// Every other transaction with the key waits until this one ends. If the work fails, roll back. A turn that is dropped
/// before [`done`](Self::done) records nothing: a commit then commits the effects, and the next transaction does the
/// work again.
#[must_use = "without `done`, a commit records nothing and the work runs again"]
pub struct OnceInTurn<'a, T> {
    transaction: &'a mut T,
    call: Call,
}

impl<'a, T: RowTransaction> OnceInTurn<'a, T> {
    pub(super) const fn new(transaction: &'a mut T, call: Call) -> Self {
        Self { transaction, call }
    }

    /// Records that the work is done, with its result of at most 64 KiB (65,536 bytes). The record exists from the
    /// commit of the transaction on.
    ///
    /// # Errors
    /// [`Invalid`](RowLockErrorKind::Invalid) for a larger result, before anything is sent. A retryable
    /// [`Conflict`](RowLockErrorKind::Conflict) if the transaction does not have the turn any more, because it was
    /// rolled back to a savepoint. Else as [`once_in`](super::once_in). After an error roll the transaction back.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether a commit would store the record: roll the transaction back.
    pub fn done(self, bytes: impl Into<Vec<u8>>) -> BoxFuture<'a, Result<(), RowLockError>> {
        let (Self { transaction, call }, bytes) = (self, bytes.into());
        Box::pin(async move {
            if bytes.len() > MAX_MEMO_BYTES {
                return Err(RowLockError::invalid(format!(
                    "once_in of {:?} with a result of {} bytes: it may have up to {MAX_MEMO_BYTES}, so store \
                     the result in a table of yours and its key here",
                    call.key,
                    bytes.len()
                )));
            }
            let dialect = transaction.dialect()?;
            let stored = match dialect {
                Dialect::Postgres => postgres::store(transaction, &call, &bytes).await,
                Dialect::Mysql => mysql::store(transaction, &call, &bytes).await,
                Dialect::Sqlite => sqlite::store(transaction, &call, &bytes).await,
            };
            let stored = stored.and_then(|is_stored| if is_stored { Ok(()) } else { Err(no_turn()) });
            stored.map_err(|failure| RowLockError::of(failure, &call.subject(dialect)))
        })
    }
}

fn no_turn() -> Failure {
    let message = "the transaction was rolled back to a savepoint before its turn";
    Failure::new(RowLockErrorKind::Conflict, message)
}

impl<T> Deref for OnceInTurn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.transaction
    }
}

impl<T> DerefMut for OnceInTurn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.transaction
    }
}

/// The result may be confidential, so only its length is shown.
impl<T> fmt::Debug for OnceIn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(turn) => f.debug_tuple("Run").field(turn).finish(),
            Self::Done(bytes) => write!(f, "Done({} bytes)", bytes.len()),
        }
    }
}

impl<T> fmt::Debug for OnceInTurn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceInTurn").field(&self.call).finish()
    }
}

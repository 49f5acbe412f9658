//! What the code of row locks needs of a transaction, whatever client library it is of.

use leasehold_core::BoxFuture;

use super::{RowLockError, error::Failure};
use crate::Dialect;

/// A transaction of a client library in which names can be locked. This trait cannot be implemented elsewhere.
pub trait RowTransaction: Send + Statements {}

impl<T: Send + Statements> RowTransaction for T {}

/// The statements in a transaction. Public only because a public trait names it; its module is private.
pub trait Statements {
    /// The database system of the transaction.
    fn dialect(&self) -> Result<Dialect, RowLockError>;

    /// Executes a statement with these parameters; without parameters, several statements with `;` between them. All
    /// rows that they return have two columns of 64-bit integers.
    fn rows<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<(i64, i64)>, Failure>>;

    /// As [`rows`](Self::rows), for rows of three columns, the second and third of which are bytes. The parameters of
    /// bytes follow those of text. MySQL and MariaDB get statements without parameters.
    fn records<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
        bytes: &'a [&'a [u8]],
    ) -> BoxFuture<'a, Result<Vec<RecordRow>, Failure>>;
}

/// A row of a number and two columns of bytes.
pub(super) type RecordRow = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

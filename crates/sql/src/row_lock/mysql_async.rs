//! Transactions of `mysql_async`.

use leasehold_core::BoxFuture;
use mysql_async::{
    Error, Transaction,
    prelude::{FromRow, Queryable},
};

use super::{
    RowLockError, RowLockErrorKind,
    error::Failure,
    transaction::{RecordRow, Statements},
};
use crate::Dialect;

impl Statements for Transaction<'_> {
    fn dialect(&self) -> Result<Dialect, RowLockError> {
        Ok(Dialect::Mysql)
    }

    fn rows<'a>(
        &'a mut self,
        text: &'a str,
        _parameters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<(i64, i64)>, Failure>> {
        Box::pin(read(self, text))
    }

    fn records<'a>(
        &'a mut self,
        text: &'a str,
        _parameters: &'a [String],
        _bytes: &'a [&'a [u8]],
    ) -> BoxFuture<'a, Result<Vec<RecordRow>, Failure>> {
        Box::pin(read(self, text))
    }
}

/// The rows of all results of a text.
async fn read<R: FromRow + Send + 'static>(
    transaction: &mut Transaction<'_>,
    text: &str,
) -> Result<Vec<R>, Failure> {
    let mut rows = Vec::new();
    let mut result = transaction.query_iter(text).await.map_err(failure)?;
    // `columns` returns `Some`, also for a result without columns, until the last result is read.
    while result.columns().is_some() {
        rows.extend(result.collect::<R>().await.map_err(failure)?);
    }
    // The driver keeps an error of any but the first statement until the next call.
    result.drop_result().await.map_err(failure)?;
    Ok(rows)
}

fn failure(error: Error) -> Failure {
    let (kind, message) = match &error {
        Error::Server(answer) => return Failure::of_mysql(answer.code, answer.message.clone(), error),
        Error::Io(_) | Error::Driver(mysql_async::DriverError::ConnectionClosed) => {
            (RowLockErrorKind::Disconnected, error.to_string())
        }
        _ => (RowLockErrorKind::Database, error.to_string()),
    };
    Failure::of(kind, message, error)
}

//! Transactions of `mysql_async`.

use leasehold_core::BoxFuture;
use mysql_async::{Error, Transaction, prelude::Queryable};

use super::{RowLockError, RowLockErrorKind, error::Failure, transaction::Statements};
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
        Box::pin(async move {
            let mut rows = Vec::new();
            let mut result = self.query_iter(text).await.map_err(failure)?;
            // `columns` returns `Some`, also for a result without columns, until the last result is read.
            while result.columns().is_some() {
                rows.extend(result.collect::<(i64, i64)>().await.map_err(failure)?);
            }
            // The driver keeps an error of any but the first statement until the next call.
            result.drop_result().await.map_err(failure)?;
            Ok(rows)
        })
    }
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

//! Transactions of `tokio-postgres`.

use leasehold_core::BoxFuture;
use tokio_postgres::{
    Error, Transaction,
    types::{ToSql, Type},
};

use super::{
    RowLockError, RowLockErrorKind,
    error::{Failure, postgres_kind},
    transaction::{RecordRow, Statements},
};
use crate::Dialect;

impl Statements for Transaction<'_> {
    fn dialect(&self) -> Result<Dialect, RowLockError> {
        Ok(Dialect::Postgres)
    }

    fn rows<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<(i64, i64)>, Failure>> {
        Box::pin(async move {
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                parameters.iter().map(|name| (name as &(dyn ToSql + Sync), Type::TEXT)).collect();
            // One round trip: the server is not asked for the types.
            let rows = self.query_typed(text, &typed).await.map_err(failure)?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<_, _>>()
                .map_err(failure)
        })
    }

    fn records<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
        bytes: &'a [&'a [u8]],
    ) -> BoxFuture<'a, Result<Vec<RecordRow>, Failure>> {
        Box::pin(async move {
            let texts = parameters.iter().map(|text| (text as &(dyn ToSql + Sync), Type::TEXT));
            let bytes = bytes.iter().map(|bytes| (bytes as &(dyn ToSql + Sync), Type::BYTEA));
            let rows =
                self.query_typed(text, &texts.chain(bytes).collect::<Vec<_>>()).await.map_err(failure)?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
                .collect::<Result<_, _>>()
                .map_err(failure)
        })
    }
}

fn failure(error: Error) -> Failure {
    use std::error::Error as _;
    let (kind, message) = match error.as_db_error() {
        Some(answer) => (postgres_kind(answer.code().code()), answer.message().to_owned()),
        None => {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let is_broken =
                error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>());
            let kind = if is_broken { RowLockErrorKind::Disconnected } else { RowLockErrorKind::Database };
            (kind, cause)
        }
    };
    Failure::of(kind, message, error)
}

//! Transactions of `sqlx`, of any of its database systems that row locks know.
//!
//! The code is generic, and finds out by its name which system it has: so this crate needs none of the drivers of
//! `sqlx`.

use leasehold_core::BoxFuture;
use sqlx::{
    AssertSqlSafe, ColumnIndex, Database, Decode, Encode, Error, Executor, IntoArguments, Row, Transaction,
    Type, error::DatabaseError,
};

use super::{
    RowLockError, RowLockErrorKind,
    error::{Failure, postgres_kind, sqlite_kind},
    transaction::{RecordRow, Statements},
};
use crate::Dialect;

impl<DB> Statements for Transaction<'_, DB>
where
    DB: Database,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    String: Type<DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    i64: Type<DB>,
    for<'r> i64: Decode<'r, DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'r> Vec<u8>: Decode<'r, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    fn dialect(&self) -> Result<Dialect, RowLockError> {
        match DB::NAME {
            "PostgreSQL" => Ok(Dialect::Postgres),
            "MySQL" => Ok(Dialect::Mysql),
            "SQLite" => Ok(Dialect::Sqlite),
            other => Err(RowLockError::invalid(format!(
                "row locks know PostgreSQL, MySQL, MariaDB and SQLite, and not {other}"
            ))),
        }
    }

    fn rows<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<(i64, i64)>, Failure>> {
        Box::pin(async move {
            let connection: &mut DB::Connection = &mut *self;
            let rows = if parameters.is_empty() {
                connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await
            } else {
                let query = parameters
                    .iter()
                    .fold(sqlx::query(AssertSqlSafe(text)), |query, name| query.bind(name.as_str()));
                connection.fetch_all(query).await
            };
            let mut pairs = Vec::new();
            for row in rows.map_err(failure)? {
                // A pragma that sets a value returns one column.
                if row.len() > 1 {
                    let pair = row.try_get(0).and_then(|first| Ok((first, row.try_get(1)?)));
                    pairs.push(pair.map_err(failure)?);
                }
            }
            Ok(pairs)
        })
    }

    fn records<'a>(
        &'a mut self,
        text: &'a str,
        parameters: &'a [String],
        bytes: &'a [&'a [u8]],
    ) -> BoxFuture<'a, Result<Vec<RecordRow>, Failure>> {
        Box::pin(async move {
            let connection: &mut DB::Connection = &mut *self;
            let rows = if parameters.is_empty() && bytes.is_empty() {
                connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await
            } else {
                let query = sqlx::query(AssertSqlSafe(text));
                let query = parameters.iter().fold(query, |query, text| query.bind(text.as_str()));
                let query = bytes.iter().fold(query, |query, bytes| query.bind(*bytes));
                connection.fetch_all(query).await
            };
            let record = |row: &DB::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            rows.map_err(failure)?.iter().map(record).collect::<Result<_, _>>().map_err(failure)
        })
    }
}

fn failure(error: Error) -> Failure {
    let (kind, message) = match &error {
        Error::Database(answer) => {
            let message = answer.message().to_owned();
            match mysql_number(&**answer) {
                Some(number) => return Failure::of_mysql(number, message, error),
                None => (kind_of(&**answer), message),
            }
        }
        Error::Io(_) | Error::PoolClosed | Error::WorkerCrashed => {
            (RowLockErrorKind::Disconnected, error.to_string())
        }
        _ => (RowLockErrorKind::Database, error.to_string()),
    };
    Failure::of(kind, message, error)
}

/// The number of an error of MySQL or MariaDB, which `sqlx` shows only in the text before the SQLSTATE.
fn mysql_number(answer: &dyn DatabaseError) -> Option<u16> {
    let (code, text) = (answer.code().unwrap_or_default(), answer.to_string());
    let (number, rest) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    rest.starts_with(&format!("({code})")).then_some(number)
}

/// The kind of an error of PostgreSQL or SQLite. A SQLSTATE is five characters long; a code of SQLite is a number of up
/// to four digits.
fn kind_of(answer: &dyn DatabaseError) -> RowLockErrorKind {
    let code = answer.code().unwrap_or_default();
    match code.parse() {
        Ok(number) if code.len() < 5 => sqlite_kind(number, answer.message()),
        _ => postgres_kind(&code),
    }
}

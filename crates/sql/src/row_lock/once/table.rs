//! The table of the records: how it is created, and how ended records are deleted.

use leasehold_core::BoxFuture;

use super::{mysql, postgres, sqlite};
use crate::{
    Dialect,
    dialect::is_plain_table,
    row_lock::{RowLockError, RowTransaction, error::Subject, request::MAX_NAME_BYTES},
};

/// The table of the records, unless the call names another one.
const TABLE: &str = "leasehold_once";
/// How many ended records one call deletes, at most: their rows stay locked until the transaction ends.
pub(super) const MAX_DELETED: usize = 500;

/// The table of the records of [`once_in`](super::once_in).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceInTable {
    name: String,
}

impl OnceInTable {
    /// A table with this name, which may begin with a schema. The default is `leasehold_once`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The statements that create the table. Run them once, as a user with the right to create tables; the users that
    /// call [`once_in`](super::once_in) need the rights `SELECT`, `INSERT` and `UPDATE` on the table, and the user that
    /// calls [`delete_ended`](Self::delete_ended) `SELECT`, `UPDATE` and `DELETE`.
    ///
    /// ```
    /// use leasehold_sql::{Dialect, OnceInTable};
    /// let statements = OnceInTable::default().schema(Dialect::Postgres);
    /// assert!(statements.starts_with("CREATE TABLE IF NOT EXISTS leasehold_once ("));
    /// ```
    #[must_use]
    pub fn schema(&self, dialect: Dialect) -> String {
        let table = &self.name;
        let (schema, plain) =
            table.split_once('.').map_or(("", &table[..]), |(schema, plain)| (schema, plain));
        match dialect {
            // The schema of an index is that of its table.
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {table} (name text COLLATE \"C\" PRIMARY KEY, ends bigint NOT NULL, digest bytea, content bytea NOT NULL); CREATE INDEX IF NOT EXISTS {plain}_ends ON {table} (ends)"
            ),
            Dialect::Mysql => format!(
                "CREATE TABLE IF NOT EXISTS {table} (name varbinary({MAX_NAME_BYTES}) NOT NULL PRIMARY KEY, ends bigint NOT NULL, digest varbinary(32), content mediumblob NOT NULL, KEY {plain}_ends (ends)) ENGINE = InnoDB"
            ),
            Dialect::Sqlite => {
                let dot = if schema.is_empty() { "" } else { "." };
                format!(
                    "CREATE TABLE IF NOT EXISTS {table} (name text NOT NULL PRIMARY KEY, ends integer NOT NULL, digest blob, content blob NOT NULL); CREATE INDEX IF NOT EXISTS {schema}{dot}{plain}_ends ON {plain} (ends)"
                )
            }
        }
    }

    /// Deletes up to 500 records that have ended, and returns how many. Nothing else deletes records: call this every
    /// now and then, in a transaction of its own, until it returns 0. It skips the keys that other transactions use
    /// now, for which MySQL 8.0 or MariaDB 10.6 is needed, and waits for nobody, except on SQLite for the right to
    /// write.
    ///
    /// # Errors
    /// [`RowLockErrorKind`](crate::RowLockErrorKind) lists them.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown what the transaction has deleted. That is harmless.
    pub fn delete_ended<'a, T: RowTransaction>(
        &self,
        transaction: &'a mut T,
    ) -> BoxFuture<'a, Result<usize, RowLockError>> {
        let table = self.clone();
        Box::pin(async move {
            table.check()?;
            let dialect = transaction.dialect()?;
            let deleted = match dialect {
                Dialect::Postgres => postgres::delete_ended(transaction, &table.name).await,
                Dialect::Mysql => mysql::delete_ended(transaction, &table.name).await,
                Dialect::Sqlite => sqlite::delete_ended(transaction, &table.name).await,
            };
            deleted.map_err(|failure| RowLockError::of(failure, &table.subject(dialect)))
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn check(&self) -> Result<(), RowLockError> {
        if is_plain_table(&self.name) {
            return Ok(());
        }
        Err(RowLockError::invalid(format!(
            "the table {:?} of once_in: its name may only have letters, digits and _",
            self.name
        )))
    }

    /// What an error about ended records is about.
    fn subject(&self, dialect: Dialect) -> Subject {
        Subject {
            what: format!("ended records of {}", self.name),
            schema: self.schema(dialect),
            rights: format!("SELECT, UPDATE and DELETE on {}", self.name),
            when_not_first: "use a transaction of its own",
        }
    }
}

impl Default for OnceInTable {
    fn default() -> Self {
        Self::new(TABLE)
    }
}

//! Locks that live as long as a transaction of your program, and work that is recorded in one (the features
//! `mysql_async`, `sqlx` and `tokio-postgres`); fences in your tables.

pub use leasehold_sql::{Dialect, Fence, FenceStatement, Fenced};
#[cfg(any(feature = "mysql_async", feature = "sqlx", feature = "tokio-postgres"))]
pub use leasehold_sql::{
    OnceIn, OnceInCall, OnceInTable, OnceInTurn, RowHolds, RowLock, RowLockError, RowLockErrorKind,
    RowTransaction, once_in, row_lock,
};

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl crate::Locks {
    /// The statements that create the tables of these locks, for users who create the tables themselves. `None` on
    /// engines without tables.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let url = format!("sqlite:{}/locks.db", dir.path().display());
    /// let locks = leasehold::Locks::connect(&url)?;
    /// assert!(locks.sql_schema().is_some_and(|statements| statements.contains("CREATE TABLE")));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn sql_schema(&self) -> Option<&'static str> {
        let crate::open::EngineHandle::Sql { schema } = self.handle else { return None };
        Some(schema)
    }
}

//! Locks that live as long as a transaction of your program (the features `mysql_async`, `sqlx` and `tokio-postgres`),
//! and fences in your tables.

pub use leasehold_sql::{Dialect, Fence, FenceStatement, Fenced};
#[cfg(any(feature = "mysql_async", feature = "sqlx", feature = "tokio-postgres"))]
pub use leasehold_sql::{RowHolds, RowLock, RowLockError, RowLockErrorKind, RowTransaction, row_lock};

//! Why names could not be locked in a transaction.

use std::fmt;

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Why [`row_lock`](super::row_lock) or [`once_in`](super::once_in) failed. The transaction must be rolled back.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct RowLockError {
    kind: RowLockErrorKind,
    message: String,
    source: Option<BoxedError>,
}

/// The kinds of [`RowLockError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RowLockErrorKind {
    /// Another transaction has locked a name, and this call does not wait.
    Taken,
    /// Another transaction has locked a name, and the wait for it ended: by [`RowLock::wait`](super::RowLock::wait), or
    /// by a time limit of the server or of the session.
    TimedOut,
    /// The server cannot give this transaction the lock, but it can give the lock to a new one: the transaction has
    /// read data that is now out of date (SQLSTATE 40001), or two transactions waited for each other.
    Conflict,
    /// The connection broke. The server rolls the transaction back.
    Disconnected,
    /// The transaction has written before. Locks that are taken one after another can wait for each other.
    NotFirst,
    /// The record under the key of [`once_in`](super::once_in) belongs to another payload.
    Mismatch,
    /// The table of the locks or of the records does not exist.
    MissingTable,
    /// The user may not read and write that table.
    Denied,
    /// The names or options are wrong.
    Invalid,
    /// Another error of the database; it is the source of this error.
    Database,
}

/// What a failed call was about, for its message.
#[derive(Debug)]
pub(super) struct Subject {
    /// The call and its names.
    pub(super) what: String,
    /// The statement that creates the table.
    pub(super) schema: String,
    /// The rights that the call needs.
    pub(super) rights: String,
    /// What to do if the transaction has written before.
    pub(super) when_not_first: &'static str,
}

/// The failure of a statement, as the adapter of a client library reports it.
#[derive(Debug)]
pub struct Failure {
    pub(super) kind: RowLockErrorKind,
    /// The text of the server or of the client library.
    pub(super) message: String,
    pub(super) source: Option<BoxedError>,
    /// The server did nothing, because it does not know the statement. The transaction is as before.
    pub(super) is_unknown_statement: bool,
}

impl Failure {
    /// A failure that the code of row locks itself finds.
    pub(super) fn new(kind: RowLockErrorKind, message: &str) -> Self {
        Self { kind, message: message.to_owned(), source: None, is_unknown_statement: false }
    }

    /// Another transaction has locked all names, or one of them if the call needs all.
    pub(super) fn taken() -> Self {
        Self::new(RowLockErrorKind::Taken, "another transaction has locked it")
    }

    /// The failure that a client library reports.
    pub(super) fn of<E>(kind: RowLockErrorKind, message: String, source: E) -> Self
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        Self { kind, message, source: Some(Box::new(source)), is_unknown_statement: false }
    }

    /// The failure of a statement that MySQL or MariaDB refused with this number.
    #[cfg(any(feature = "sqlx", feature = "mysql_async"))]
    pub(super) fn of_mysql<E>(number: u16, message: String, source: E) -> Self
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        // A syntax error, a text of comments only, and an unknown variable: all found before the statement runs.
        let is_unknown_statement = matches!(number, 1064 | 1065 | 1193);
        Self { is_unknown_statement, ..Self::of(mysql_kind(number), message, source) }
    }
}

impl RowLockError {
    /// An error about wrong names or options.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { kind: RowLockErrorKind::Invalid, message: message.into(), source: None }
    }

    /// The error about this subject, with what to do.
    pub(super) fn of(failure: Failure, subject: &Subject) -> Self {
        let Failure { kind, message, source, .. } = failure;
        let what_to_do = match kind {
            RowLockErrorKind::MissingTable => format!(": create it by {}", subject.schema),
            RowLockErrorKind::Conflict | RowLockErrorKind::Disconnected => {
                ": roll back, and run the whole transaction again".to_owned()
            }
            RowLockErrorKind::NotFirst => format!(": {}", subject.when_not_first),
            RowLockErrorKind::Denied => format!(": grant {}", subject.rights),
            _ => String::new(),
        };
        let message = format!("{}: {message}{what_to_do}", subject.what);
        Self { kind, message, source }
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> RowLockErrorKind {
        self.kind
    }

    /// Another transaction has locked a name, or runs the key: at once, or until the wait ended.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self.kind, RowLockErrorKind::Taken | RowLockErrorKind::TimedOut)
    }

    /// Whether the same transaction can succeed if it is rolled back and run again from its begin: after a conflict,
    /// and after the connection broke. Nothing was committed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, RowLockErrorKind::Conflict | RowLockErrorKind::Disconnected)
    }
}

impl fmt::Debug for RowLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowLockError({:?}: {})", self.kind, self.message)
    }
}

/// The kind of an error of PostgreSQL, by its SQLSTATE.
#[cfg(any(feature = "sqlx", feature = "tokio-postgres"))]
pub(super) fn postgres_kind(code: &str) -> RowLockErrorKind {
    match code {
        // The second is the end of statement_timeout.
        "55P03" | "57014" => RowLockErrorKind::TimedOut,
        "40001" | "40P01" => RowLockErrorKind::Conflict,
        "42P01" => RowLockErrorKind::MissingTable,
        "42501" => RowLockErrorKind::Denied,
        // The server ends the session, or a pooler lost it.
        "57P01" | "57P02" | "57P03" | "25P03" | "25P04" => RowLockErrorKind::Disconnected,
        code if code.starts_with("08") => RowLockErrorKind::Disconnected,
        _ => RowLockErrorKind::Database,
    }
}

/// The kind of an error of MySQL or MariaDB, by its number.
#[cfg(any(feature = "sqlx", feature = "mysql_async"))]
fn mysql_kind(number: u16) -> RowLockErrorKind {
    match number {
        // The others are the ends of max_execution_time and max_statement_time.
        1205 | 3024 | 1969 => RowLockErrorKind::TimedOut,
        // The second: the row has changed since the transaction's snapshot (innodb_snapshot_isolation).
        1213 | 1020 => RowLockErrorKind::Conflict,
        1146 => RowLockErrorKind::MissingTable,
        1044 | 1142 | 1143 => RowLockErrorKind::Denied,
        1053 | 1927 | 2006 | 2013 | 4031 => RowLockErrorKind::Disconnected,
        _ => RowLockErrorKind::Database,
    }
}

/// The kind of an error of SQLite, by its extended code and its message: it has no code for a missing table.
#[cfg(feature = "sqlx")]
pub(super) fn sqlite_kind(code: u32, message: &str) -> RowLockErrorKind {
    const BUSY_SNAPSHOT: u32 = 517;
    match code & 0xff {
        _ if code == BUSY_SNAPSHOT => RowLockErrorKind::Conflict,
        // Busy, and locked by another connection with the same cache.
        5 | 6 => RowLockErrorKind::TimedOut,
        1 if message.contains("no such table") => RowLockErrorKind::MissingTable,
        _ => RowLockErrorKind::Database,
    }
}

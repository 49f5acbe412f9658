//! Work that is done one time for a key, with its record in the transaction of the work: [`once_in`].
//!
//! A record is a row of a table of its own. The call creates the row or locks the one that is there, so a second
//! transaction with the key waits until the first one has ended. [`OnceInTurn::done`] writes the result into the row. A
//! row without a result has ended at 0: it counts as no record, and the next transaction uses it.

mod mysql;
mod postgres;
mod sqlite;
mod table;
mod turn;

use std::{fmt, time::Duration};

use leasehold_core::{BoxFuture, MAX_MEMO_KEEP, MIN_MEMO_KEEP};

pub use self::{
    table::OnceInTable,
    turn::{OnceIn, OnceInTurn},
};
use super::{
    RowLockError, RowLockErrorKind, RowTransaction,
    error::{Failure, Subject},
    request::{MAX_NAME_BYTES, MAX_WAIT},
};
use crate::Dialect;

/// For how long a result is stored unless [`OnceInCall::keep`] says otherwise.
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);
/// How often a call looks for a record and finds that it ended before the call could use its row. That needs a `keep`
/// that is shorter than one statement.
const MAX_LOOKS: usize = 3;

/// Work that is done **exactly one time** for a key, if all its effects are in the transaction: the transaction that
/// commits the effects commits the record of them. A message that is delivered twice, a repeated payment order.
///
/// The transaction is one of yours, as for [`row_lock`](super::row_lock). Nothing happens before the returned value is
/// awaited. Then it is [`OnceIn::Run`], a turn in which your program does the work and ends with [`OnceInTurn::done`];
/// or [`OnceIn::Done`], the stored result of the transaction that did the work. The table must exist:
/// [`OnceInTable::schema`] has the statement that creates it.
///
/// - **A second transaction with the key waits** until the first one has ended: as long as the server lets it wait, or
///   at most [`wait`](OnceInCall::wait). After a commit it receives the result, after a rollback it has the turn.
/// - **A rollback records nothing**, nor does a program or a connection that dies: effects and record are undone
///   together. A turn that is committed without [`done`](OnceInTurn::done) records nothing, and the next one runs.
/// - **A commit that gets no answer** has an unknown outcome. Make the same call in a new transaction: it waits until
///   the server has ended the first one, and tells whether it was committed.
/// - **Effects outside of this database are not covered**: a mail or a call of an API. Send them after the commit, from
///   a table in which the transaction stored them (an outbox), or use [`Locks::once`](leasehold_core::Locks::once).
/// - **Call it first.** What the transaction has written before is committed also after [`OnceIn::Done`]. On PostgreSQL
///   a call after a write that would be the turn is refused with [`RowLockErrorKind::NotFirst`] unless
///   [`after_writes`](OnceInCall::after_writes) allows it; the other databases do not tell.
/// - What the transaction reads after the call is at least as new as the last commit with a record of the key. With
///   REPEATABLE READ, SERIALIZABLE and on SQLite the call fails with [`RowLockErrorKind::Conflict`] if the transaction
///   has read before that commit. On PostgreSQL with these two levels that is so for every call that has waited for a
///   commit.
/// - On MySQL, MariaDB and SQLite a call that receives a result locks the record until its transaction ends; on
///   PostgreSQL so does a call that has waited for the result.
///
/// # Errors
/// [`RowLockErrorKind`] lists them; [`Mismatch`](RowLockErrorKind::Mismatch) if the record is that of another payload.
/// After an error roll the transaction back; if the error [is retryable](RowLockError::is_retryable), run the whole
/// transaction again.
///
/// # Cancel safety
/// If the future is dropped, it is unknown whether the transaction has the turn: roll it back. After a call with
/// [`OnceInCall::wait`] on SQLite and MySQL also close the connection, as for [`row_lock`](super::row_lock).
pub fn once_in<T: RowTransaction>(transaction: &mut T, key: impl Into<String>) -> OnceInCall<'_, T> {
    OnceInCall {
        transaction,
        call: Call {
            key: key.into(),
            table: OnceInTable::default(),
            keep: DEFAULT_KEEP,
            digest: None,
            wait: None,
            is_first: true,
        },
    }
}

/// A call of [`once_in`] with its options, to be awaited.
#[must_use = "this does nothing until it is awaited"]
pub struct OnceInCall<'a, T> {
    transaction: &'a mut T,
    call: Call,
}

/// The options of a call.
#[derive(Clone, Debug)]
struct Call {
    key: String,
    table: OnceInTable,
    keep: Duration,
    digest: Option<[u8; 32]>,
    wait: Option<Duration>,
    is_first: bool,
}

/// What a call found in the database.
enum Found {
    /// The transaction has the turn.
    Turn,
    /// A result with its digest.
    Record { digest: Option<Vec<u8>>, content: Vec<u8> },
}

impl<T> OnceInCall<'_, T> {
    /// For how long the result is stored, counted from [`OnceInTurn::done`] by the clock of the database: 1 ms to 400
    /// days; a day by default. After that the work runs again.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.call.keep = keep;
        self
    }

    /// The digest of the payload, for instance its SHA-256. It is stored with the result. A call with another digest
    /// fails with [`RowLockErrorKind::Mismatch`]; without a digest, on one side or the other, nothing is compared.
    pub const fn digest(mut self, digest: [u8; 32]) -> Self {
        self.call.digest = Some(digest);
        self
    }

    /// Waits at most this long for each transaction with the key that is ahead of this one, rounded up to milliseconds;
    /// on MySQL and MariaDB rounded up to seconds. Then the call fails with [`RowLockErrorKind::TimedOut`]. Later
    /// statements of the transaction have the time limit that they had before.
    pub const fn wait(mut self, limit: Duration) -> Self {
        self.call.wait = Some(limit);
        self
    }

    /// Accepts a transaction that has written before, which only PostgreSQL tells: for several keys in one transaction.
    /// Two such transactions can wait for each other; the server ends one of them with a
    /// [`Conflict`](RowLockErrorKind::Conflict). After [`OnceIn::Done`] roll back, unless the earlier writes count all
    /// the same.
    pub const fn after_writes(mut self) -> Self {
        self.call.is_first = false;
        self
    }

    /// Uses this table in place of `leasehold_once`.
    pub fn table(mut self, table: &OnceInTable) -> Self {
        self.call.table = table.clone();
        self
    }
}

impl<'a, T: RowTransaction> IntoFuture for OnceInCall<'a, T> {
    type Output = Result<OnceIn<'a, T>, RowLockError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { transaction, call } = self;
        // Boxed for the same reason as the future of `row_lock`.
        Box::pin(async move {
            call.check()?;
            let dialect = transaction.dialect()?;
            let found = match dialect {
                Dialect::Postgres => postgres::begin(transaction, &call).await,
                Dialect::Mysql => mysql::begin(transaction, &call).await,
                Dialect::Sqlite => sqlite::begin(transaction, &call).await,
            };
            let found = found.and_then(|found| call.same_payload(found));
            match found.map_err(|failure| RowLockError::of(failure, &call.subject(dialect)))? {
                Found::Turn => Ok(OnceIn::Run(OnceInTurn::new(transaction, call))),
                Found::Record { content, .. } => Ok(OnceIn::Done(content)),
            }
        })
    }
}

impl Call {
    /// Checks the key and the options before anything is sent.
    fn check(&self) -> Result<(), RowLockError> {
        let key = &self.key;
        if key.is_empty() || key.len() > MAX_NAME_BYTES || key.contains('\0') {
            return Err(RowLockError::invalid(format!(
                "once_in of a key with {} bytes: a key has 1 to {MAX_NAME_BYTES} bytes, and none of them is 0",
                key.len()
            )));
        }
        if !(MIN_MEMO_KEEP..=MAX_MEMO_KEEP).contains(&self.keep) {
            return Err(RowLockError::invalid(format!(
                "once_in with a keep of {:?}: it may be 1 ms to 400 days",
                self.keep
            )));
        }
        if let Some(limit) = self.wait
            && (limit.is_zero() || limit > MAX_WAIT)
        {
            return Err(RowLockError::invalid(format!(
                "once_in with a wait of {limit:?}: it may be 1 ns to {MAX_WAIT:?}"
            )));
        }
        self.table.check()
    }

    /// The record, unless it is that of another payload.
    fn same_payload(&self, found: Found) -> Result<Found, Failure> {
        if let (Some(own), Found::Record { digest: Some(stored), .. }) = (&self.digest, &found)
            && own[..] != stored[..]
        {
            let message = "the record belongs to another payload: use another key for this one";
            return Err(Failure::new(RowLockErrorKind::Mismatch, message));
        }
        Ok(found)
    }

    /// What an error of this call is about.
    fn subject(&self, dialect: Dialect) -> Subject {
        Subject {
            what: format!("once_in of {:?}", self.key),
            schema: self.table.schema(dialect),
            rights: format!("SELECT, INSERT and UPDATE on {}", self.table.name()),
            when_not_first: "call once_in before the first write, or allow it by after_writes()",
        }
    }

    fn keep_micros(&self) -> u128 {
        self.keep.as_micros()
    }
}

/// The record ended again and again before the call could use its row.
fn always_ended() -> Failure {
    Failure::new(RowLockErrorKind::Conflict, "the records of this key end as soon as they are written")
}

impl<T> fmt::Debug for OnceInCall<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceInCall").field(&self.call).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            key: "n".to_owned(),
            table: OnceInTable::default(),
            keep: DEFAULT_KEEP,
            digest: None,
            wait: None,
            is_first: true,
        }
    }

    #[test]
    fn wrong_keys_tables_and_times_are_refused() {
        for wrong in [
            Call { key: String::new(), ..call() },
            Call { key: "a\0b".to_owned(), ..call() },
            Call { key: "a".repeat(MAX_NAME_BYTES + 1), ..call() },
            Call { table: OnceInTable::new("t; DROP TABLE t"), ..call() },
            Call { keep: Duration::ZERO, ..call() },
            Call { keep: MAX_MEMO_KEEP + Duration::from_nanos(1), ..call() },
            Call { wait: Some(Duration::ZERO), ..call() },
            Call { wait: Some(Duration::MAX), ..call() },
        ] {
            assert_eq!(wrong.check().unwrap_err().kind(), RowLockErrorKind::Invalid, "{wrong:?}");
        }
        let table = OnceInTable::new("shop.once");
        let longest = Call { key: "a".repeat(MAX_NAME_BYTES), keep: MAX_MEMO_KEEP, table, ..call() };
        assert!(longest.check().is_ok());
    }

    #[test]
    fn payloads_differ_only_if_both_sides_have_a_digest() {
        let record = |digest: Option<[u8; 32]>| Found::Record {
            digest: digest.map(|digest| digest.to_vec()),
            content: Vec::new(),
        };
        for (own, stored, agrees) in [
            (None, None, true),
            (None, Some([1; 32]), true),
            (Some([1; 32]), None, true),
            (Some([1; 32]), Some([1; 32]), true),
            (Some([1; 32]), Some([2; 32]), false),
        ] {
            let checked = Call { digest: own, ..call() }.same_payload(record(stored));
            assert_eq!(checked.is_ok(), agrees, "{own:?} {stored:?}");
        }
    }
}

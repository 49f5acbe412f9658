//! Row locks of PostgreSQL.
//!
//! One statement creates the rows that are missing, locks all rows in the order of their names, and raises their
//! tokens. Because it writes the rows, a transaction with an older snapshot (REPEATABLE READ, SERIALIZABLE) fails with
//! SQLSTATE 40001 and never reads data from before the last commit under the lock.

use std::time::Duration;

use super::{
    RowLock, RowLockErrorKind, error::Failure, numbered::Numbered, request::Waiting,
    transaction::RowTransaction,
};

/// How long a call that does not wait may wait for another transaction that creates the row of a name: a row that is
/// not committed cannot be seen, and so cannot be skipped.
const CREATE_WAIT: Duration = Duration::from_millis(10);
/// The time limit for each lock, in milliseconds.
const LOCK_TIMEOUT: &str =
    "SELECT 1::bigint, setting::bigint FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'";
/// The number of this transaction if it has written, else 0.
const WRITTEN: &str = "SELECT 1::bigint, coalesce(pg_catalog.txid_current_if_assigned(), 0)";

pub(super) async fn lock<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
) -> Result<Vec<(i64, i64)>, Failure> {
    match lock.waiting {
        Waiting::AsTheServer => raise(transaction, lock).await,
        Waiting::AtMost(limit) => {
            let before = set_lock_timeout(transaction, limit).await?;
            let tokens = raise(transaction, lock).await?;
            reset_lock_timeout(transaction, before).await?;
            Ok(tokens)
        }
        Waiting::Not | Waiting::Skip => try_raise(transaction, lock).await,
    }
}

fn parameters_of(lock: &RowLock) -> Numbered {
    Numbered::new('$', "::text", lock.names().len())
}

/// Raises the tokens of all names, and waits for the transactions that have locked them.
async fn raise<T: RowTransaction>(transaction: &mut T, lock: &RowLock) -> Result<Vec<(i64, i64)>, Failure> {
    let (table, names) = (lock.table_name(), parameters_of(lock));
    // The server evaluates this condition once, before it writes the first row.
    let condition = if lock.is_first { " WHERE pg_catalog.txid_current_if_assigned() IS NULL" } else { "" };
    let order = if lock.names().len() == 1 { "" } else { " ORDER BY place" };
    let text = format!(
        "INSERT INTO {table} AS held (name, token) SELECT asked.name, 1 FROM ({}) AS asked{condition}{order} \
         ON CONFLICT (name) DO UPDATE SET token = held.token + 1 RETURNING {}, held.token",
        names.places(),
        names.place_of("held.name"),
    );
    let tokens = transaction.rows(&text, lock.names()).await?;
    if tokens.is_empty() { Err(not_first()) } else { Ok(tokens) }
}

fn not_first() -> Failure {
    Failure::new(RowLockErrorKind::NotFirst, "the transaction has written before")
}

/// Raises the tokens of the names that no other transaction has locked.
async fn try_raise<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
) -> Result<Vec<(i64, i64)>, Failure> {
    if lock.is_first && transaction.rows(WRITTEN, &[]).await?.iter().any(|(_, number)| *number != 0) {
        return Err(not_first());
    }
    let (table, names) = (lock.table_name(), parameters_of(lock));
    let text = format!(
        "WITH free AS (SELECT name FROM {table} WHERE name IN ({}) ORDER BY name FOR UPDATE SKIP LOCKED) \
         UPDATE {table} AS held SET token = held.token + 1 FROM free WHERE held.name = free.name \
         RETURNING {}, held.token",
        names.list(),
        names.place_of("held.name"),
    );
    let mut tokens = transaction.rows(&text, lock.names()).await?;
    if tokens.len() < lock.names().len() {
        let text =
            format!("SELECT {}, token FROM {table} WHERE name IN ({})", names.place_of("name"), names.list());
        let existing = transaction.rows(&text, lock.names()).await?;
        let waits_for_none = lock.waiting == Waiting::Not;
        if waits_for_none && tokens.len() < existing.len() {
            return Err(Failure::taken());
        }
        for place in 1..=lock.names().len() {
            if !existing.iter().any(|(there, _)| usize::try_from(*there) == Ok(place)) {
                let created = create(transaction, lock, place).await?;
                if waits_for_none && created.is_none() {
                    return Err(Failure::taken());
                }
                tokens.extend(created);
            }
        }
    }
    Ok(tokens)
}

/// Creates the row of a name that nobody used before, unless another transaction does so now.
async fn create<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    place: usize,
) -> Result<Option<(i64, i64)>, Failure> {
    transaction.rows("SAVEPOINT leasehold_row_lock", &[]).await?;
    let before = set_lock_timeout(transaction, CREATE_WAIT).await?;
    let text = format!(
        "INSERT INTO {} (name, token) VALUES ($1::text, 1) ON CONFLICT (name) DO NOTHING RETURNING {place}::bigint, token",
        lock.table_name()
    );
    let created = transaction.rows(&text, &lock.names()[place - 1..place]).await;
    let was_taken = |failure: &Failure| failure.kind == RowLockErrorKind::TimedOut;
    let created = match created {
        Ok(created) => {
            reset_lock_timeout(transaction, before).await?;
            created.first().copied()
        }
        Err(failure) if was_taken(&failure) => {
            // The server resets the time limit too.
            transaction.rows("ROLLBACK TO SAVEPOINT leasehold_row_lock", &[]).await?;
            None
        }
        Err(failure) => return Err(failure),
    };
    transaction.rows("RELEASE SAVEPOINT leasehold_row_lock", &[]).await?;
    Ok(created)
}

/// Limits the wait for each lock. Returns the limit before, in milliseconds. If a statement fails by the limit, the
/// rollback resets it.
pub(super) async fn set_lock_timeout<T: RowTransaction>(
    transaction: &mut T,
    limit: Duration,
) -> Result<i64, Failure> {
    let before = transaction.rows(LOCK_TIMEOUT, &[]).await?.first().map_or(0, |(_, before)| *before);
    let milliseconds = i64::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    reset_lock_timeout(transaction, milliseconds).await?;
    Ok(before)
}

pub(super) async fn reset_lock_timeout<T: RowTransaction>(
    transaction: &mut T,
    milliseconds: i64,
) -> Result<(), Failure> {
    transaction.rows(&format!("SET LOCAL lock_timeout = {milliseconds}"), &[]).await.map(drop)
}

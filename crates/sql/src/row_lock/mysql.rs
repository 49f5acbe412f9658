//! Row locks of MySQL and MariaDB.
//!
//! MariaDB from 10.11.8 on checks the snapshot of a transaction by itself, so one statement creates, locks and raises
//! the rows, and returns their tokens.
//!
//! Elsewhere four kinds of statements of text in one round trip: the first creates the rows that are missing and locks
//! all of them, in the order of their names; the second reads their tokens as they are now; the third reads the tokens
//! in the snapshot of the transaction; the last raises them. With REPEATABLE READ, the level of these servers if nobody
//! changes it, a transaction that has read before has an old snapshot, and would read data from before the last commit
//! under the lock. Then the two tokens differ, whatever the level is called, and the transaction must be run again.
//! Names are written as hexadecimal digits, so that none of them can be taken for SQL.

use std::{
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{RowLock, RowLockErrorKind, error::Failure, request::Waiting, transaction::RowTransaction};

/// How long a call that does not wait may wait for another transaction that creates the row of a name: the shortest
/// time that both servers accept.
const CREATE_WAIT: Duration = Duration::from_secs(1);
/// Whether the server rolls the whole transaction back when the wait for a lock ends, at the place 0.
const ROLLS_BACK: &str = "SELECT CAST(0 AS SIGNED), CAST(@@innodb_rollback_on_timeout AS SIGNED)";
/// The end of a time limit. MariaDB limits one statement and skips this comment.
const RESET: &str =
    "SET @leasehold_limit = NULL /*!50700 , SESSION innodb_lock_wait_timeout = @leasehold_limit */";

/// Whether a server of this process did not execute the statement of [`Names::raise_checked`]. Then the calls begin
/// with the statements that every server executes. This is a hint only: it says nothing about the next server.
static LACKS_CHECK: AtomicBool = AtomicBool::new(false);

pub(super) async fn lock<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
) -> Result<Vec<(i64, i64)>, Failure> {
    let all: Vec<usize> = (1..=lock.names().len()).collect();
    match lock.waiting {
        Waiting::AsTheServer => {
            if !LACKS_CHECK.load(Ordering::Relaxed) {
                if let Some(tokens) = raise_checked(transaction, lock, &all).await? {
                    return Ok(tokens);
                }
                LACKS_CHECK.store(true, Ordering::Relaxed);
            }
            raise(transaction, lock, &all).await
        }
        Waiting::AtMost(limit) => raise_within(transaction, lock, &all, limit).await,
        Waiting::Not | Waiting::Skip => try_raise(transaction, lock, &all).await,
    }
}

/// The texts for some names of a call. Each name has a statement of its own, which finds the row by its key: to find
/// several rows at once, the server may read all rows of a small table, and then locks all of them.
struct Names<'a> {
    table: &'a str,
    /// The places of the names, which count from 1, and the names as literals.
    names: Vec<(usize, String)>,
}

impl<'a> Names<'a> {
    fn of(lock: &'a RowLock, places: &[usize]) -> Self {
        let named = |&place: &usize| (place, literal(&lock.names()[place - 1]));
        Self { table: lock.table_name(), names: places.iter().map(named).collect() }
    }

    fn joined(&self, text: impl Fn(usize, &str) -> String, separator: &str) -> String {
        self.names.iter().map(|(place, name)| text(*place, name)).collect::<Vec<_>>().join(separator)
    }

    /// Creates the missing rows, locks all, raises their tokens, and returns them. The server fails the statement if a
    /// row has changed since the snapshot of the transaction. All of the text is a comment to every server but MariaDB
    /// from 10.11.8 on. A later server without the check answers that it does not know the variable, and gets the other
    /// statements.
    fn raise_checked(&self) -> String {
        let table = self.table;
        let rows = self.joined(|_, name| format!("({name}, 1)"), ", ");
        let place = match &self.names[..] {
            [(place, _)] => place.to_string(),
            _ => format!("FIELD(name, {})", self.joined(|_, name| name.to_owned(), ", ")),
        };
        format!(
            "/*M!101108 SET STATEMENT innodb_snapshot_isolation = ON FOR \
             INSERT INTO {table} (name, token) VALUES {rows} \
             ON DUPLICATE KEY UPDATE token = {table}.token + 1 RETURNING CAST({place} AS SIGNED), token */"
        )
    }

    /// Creates the missing rows, and locks all.
    fn create(&self) -> String {
        let rows = self.joined(|_, name| format!("({name}, 0)"), ", ");
        let table = self.table;
        format!(
            "INSERT INTO {table} (name, token) VALUES {rows} ON DUPLICATE KEY UPDATE token = {table}.token"
        )
    }

    /// Reads the tokens as they are now, and locks the rows.
    fn locking_read(&self) -> String {
        let read = |place, name: &str| {
            let table = self.table;
            format!("SELECT CAST({place} AS SIGNED), token FROM {table} WHERE name = {name} FOR UPDATE")
        };
        self.joined(read, "; ")
    }

    /// Reads the tokens of those rows that exist and that no other transaction has locked, and locks these rows. A
    /// locking read of a row that does not exist would lock the gap between its neighbours, so that no other
    /// transaction could create a row there: the server does not execute it if the plain read before found no row.
    fn skipping_read(&self) -> String {
        let read = |place, name: &str| {
            let table = self.table;
            format!(
                "SELECT MAX(name) INTO @leasehold_seen FROM {table} WHERE name = {name}; \
                 SELECT CAST({place} AS SIGNED), token FROM {table} \
                 WHERE @leasehold_seen IS NOT NULL AND name = @leasehold_seen FOR UPDATE SKIP LOCKED"
            )
        };
        self.joined(read, "; ")
    }

    /// Reads the tokens in the snapshot of the transaction; the places are negative.
    fn snapshot_read(&self) -> String {
        let read = |place, name: &str| {
            let table = self.table;
            format!("SELECT CAST(-{place} AS SIGNED), token FROM {table} WHERE name = {name}")
        };
        self.joined(read, "; ")
    }

    fn raise(&self) -> String {
        self.joined(
            |_, name| format!("UPDATE {} SET token = token + 1 WHERE name = {name}", self.table),
            "; ",
        )
    }
}

/// A name, or other bytes, as a literal of digits.
pub(super) fn literal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::from("x'"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }) + "'"
}

/// Raises the tokens of all names by one statement, and waits for the transactions that have locked them. `None` if the
/// server does not know the statement and did nothing.
async fn raise_checked<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    all: &[usize],
) -> Result<Option<Vec<(i64, i64)>>, Failure> {
    match transaction.rows(&Names::of(lock, all).raise_checked(), &[]).await {
        Ok(tokens) => Ok((!tokens.is_empty()).then_some(tokens)),
        Err(failure) if failure.is_unknown_statement => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Raises the tokens of the names at these places, and waits for the transactions that have locked them.
async fn raise<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    places: &[usize],
) -> Result<Vec<(i64, i64)>, Failure> {
    let read = transaction.rows(&raising(&Names::of(lock, places)), &[]).await?;
    raised(&read)
}

fn raising(names: &Names<'_>) -> String {
    format!("{}; {}; {}; {}", names.create(), names.locking_read(), names.snapshot_read(), names.raise())
}

/// The tokens after they were raised, by the rows of both reads.
fn raised(read: &[(i64, i64)]) -> Result<Vec<(i64, i64)>, Failure> {
    let locked = read.iter().filter(|(place, _)| *place > 0);
    let tokens = locked.map(|&(place, token)| {
        if read.contains(&(-place, token)) {
            return Ok((place, token.saturating_add(1)));
        }
        let message =
            "the transaction has read data from before another transaction under this lock committed";
        Err(Failure::new(RowLockErrorKind::Conflict, message))
    });
    tokens.collect()
}

/// As [`raise`], with a time limit for the first statement: the others wait for nobody.
async fn raise_within<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    places: &[usize],
    limit: Duration,
) -> Result<Vec<(i64, i64)>, Failure> {
    let text = limited(&raising(&Names::of(lock, places)), limit);
    let read = transaction.rows(&text, &[]).await;
    reset_limit(transaction, read.as_ref().err()).await?;
    raised(&read?)
}

/// A text with a time limit for its first statement, rounded up to seconds. MariaDB limits one statement. MySQL limits
/// a session: one text sets the limit and resets it.
pub(super) fn limited(text: &str, limit: Duration) -> String {
    let seconds = limit.as_nanos().div_ceil(1_000_000_000);
    format!(
        "SET @leasehold_limit = @@SESSION.innodb_lock_wait_timeout /*!50700 , SESSION innodb_lock_wait_timeout = {seconds} */; \
         /*M!100100 SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR */ {text}; {RESET}"
    )
}

/// Resets the time limit of a text that failed: the server has skipped the rest of it, and the session lives on.
pub(super) async fn reset_limit<T: RowTransaction>(
    transaction: &mut T,
    failure: Option<&Failure>,
) -> Result<(), Failure> {
    if failure.is_some_and(|failure| failure.kind != RowLockErrorKind::Disconnected) {
        transaction.rows(RESET, &[]).await?;
    }
    Ok(())
}

/// Raises the tokens of the names that no other transaction has locked.
async fn try_raise<T: RowTransaction>(
    transaction: &mut T,
    lock: &RowLock,
    all: &[usize],
) -> Result<Vec<(i64, i64)>, Failure> {
    let names = Names::of(lock, all);
    let text = format!("{ROLLS_BACK}; {}; {}", names.skipping_read(), names.snapshot_read());
    let read = transaction.rows(&text, &[]).await?;
    let mut tokens = raised(&read)?;
    let has =
        |wanted: usize| read.iter().any(|(place, _)| usize::try_from(place.unsigned_abs()) == Ok(wanted));
    let (existing, missing): (Vec<usize>, Vec<usize>) = all.iter().partition(|place| has(**place));
    let waits_for_none = lock.waiting == Waiting::Not;
    if waits_for_none && tokens.len() < existing.len() {
        return Err(Failure::taken());
    }
    let locked: Vec<usize> = tokens.iter().filter_map(|(place, _)| usize::try_from(*place).ok()).collect();
    if !locked.is_empty() {
        transaction.rows(&Names::of(lock, &locked).raise(), &[]).await?;
    }
    // Nobody used these names before, or another transaction creates their rows now.
    for place in missing {
        match raise_within(transaction, lock, &[place], CREATE_WAIT).await {
            Ok(created) => tokens.extend(created),
            Err(failure) if failure.kind != RowLockErrorKind::TimedOut => return Err(failure),
            Err(_) if waits_for_none => return Err(Failure::taken()),
            // What the transaction has locked so far is unlocked again.
            Err(_) if read.contains(&(0, 1)) => return Err(rolled_back()),
            Err(_) => {}
        }
    }
    Ok(tokens)
}

fn rolled_back() -> Failure {
    let message = "another transaction creates one of the names, and the server rolled this transaction back because of innodb_rollback_on_timeout";
    Failure::new(RowLockErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use leasehold_core::BoxFuture;

    use super::{
        super::transaction::{RecordRow, Statements},
        *,
    };
    use crate::{Dialect, RowLockError};

    /// The answer of a server, or the result of a call.
    type Rows = Result<Vec<(i64, i64)>, Failure>;

    /// A transaction on a server that gives these answers.
    struct Answers {
        answers: Vec<Rows>,
        texts: Vec<String>,
    }

    impl Statements for Answers {
        fn dialect(&self) -> Result<Dialect, RowLockError> {
            Ok(Dialect::Mysql)
        }

        fn rows<'a>(&'a mut self, text: &'a str, _parameters: &'a [String]) -> BoxFuture<'a, Rows> {
            self.texts.push(text.to_owned());
            Box::pin(std::future::ready(self.answers.remove(0)))
        }

        fn records<'a>(
            &'a mut self,
            text: &'a str,
            _parameters: &'a [String],
            _bytes: &'a [&'a [u8]],
        ) -> BoxFuture<'a, Result<Vec<RecordRow>, Failure>> {
            unreachable!("a row lock reads no bytes: {text}")
        }
    }

    /// The result of a call on such a server, and for each text that it sent whether it was the one statement.
    fn locked(answers: Vec<Rows>) -> (Rows, Vec<bool>) {
        let mut server = Answers { answers, texts: Vec::new() };
        let result = lock(&mut server, &RowLock::from("n")).now_or_never().unwrap();
        (result, server.texts.iter().map(|text| text.starts_with("/*M!101108 SET STATEMENT")).collect())
    }

    #[test]
    fn a_server_that_does_not_know_the_one_statement_gets_the_others() {
        let refused = |number| Failure::of_mysql(number, "refused".to_owned(), std::fmt::Error);
        let (tokens, texts) = locked(vec![Ok(vec![(1, 4)])]);
        assert_eq!((tokens.unwrap(), texts), (vec![(1, 4)], vec![true]));
        // An error that ends the transaction: nothing else may be sent in it.
        for number in [1020, 1205, 1213, 1206, 1142, 1146] {
            let (failed, texts) = locked(vec![Err(refused(number))]);
            assert!(failed.is_err() && texts == [true], "{number}");
        }
        // Errors before the statement ran, and a server that skips the comment without an error.
        for first in [Err(refused(1064)), Err(refused(1065)), Err(refused(1193)), Ok(Vec::new())] {
            LACKS_CHECK.store(false, Ordering::Relaxed);
            let (tokens, texts) = locked(vec![first, Ok(vec![(1, 4), (-1, 4)])]);
            assert_eq!((tokens.unwrap(), texts), (vec![(1, 5)], vec![true, false]));
            // The next call does not ask again.
            let (conflict, texts) = locked(vec![Ok(vec![(1, 4), (-1, 3)])]);
            assert_eq!(conflict.unwrap_err().kind, RowLockErrorKind::Conflict);
            assert_eq!(texts, [false]);
        }
        LACKS_CHECK.store(false, Ordering::Relaxed);
    }

    #[test]
    fn names_are_written_as_digits_only() {
        assert_eq!(literal("a'\\ä"), "x'61275cc3a4'");
    }

    #[test]
    fn a_token_that_the_snapshot_does_not_have_is_a_conflict() {
        assert_eq!(raised(&[(1, 4), (2, 0), (-2, 0), (-1, 4)]).unwrap(), [(1, 5), (2, 1)]);
        for read in [&[(1, 4), (-1, 3)][..], &[(1, 4)], &[(1, 4), (-2, 4)]] {
            assert_eq!(raised(read).unwrap_err().kind, RowLockErrorKind::Conflict, "{read:?}");
        }
    }
}

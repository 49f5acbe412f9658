//! Which names to lock, how long to wait, and what was locked.

use std::time::Duration;

use super::{RowLockError, error::Subject};
use crate::{Dialect, dialect::is_plain_table};

/// The table of the locks, unless the call names another one.
const TABLE: &str = "leasehold_row_locks";
/// The maximum number of names in one call: each name is a parameter of one statement, and each row stays locked.
const MAX_NAMES: usize = 100;
/// The maximum length of a name in bytes, as for all names of leasehold.
pub(super) const MAX_NAME_BYTES: usize = 512;
/// The longest wait: MySQL and PostgreSQL accept more, but nobody means more.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The names that [`row_lock`](super::row_lock) locks, and its options. A `&str` or `String` is a `RowLock` of one
/// name, and an array, a slice or a `Vec` of them is one of several names.
#[derive(Clone, Debug)]
#[must_use]
pub struct RowLock {
    /// In byte order, each once: so two calls never wait for each other.
    names: Vec<String>,
    table: String,
    pub(super) waiting: Waiting,
    pub(super) is_first: bool,
}

/// What a call does when another transaction has locked a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It waits as long as the server lets it.
    AsTheServer,
    /// It waits at most this long for each name.
    AtMost(Duration),
    /// It fails.
    Not,
    /// It locks the other names.
    Skip,
}

/// The locked names with their tokens, until the end of the transaction: at least one name.
///
/// A token is a number from 1 to `i64::MAX`, to be stored in a column of 64-bit integers. For a
/// [`Fence`](crate::Fence) in the same database it is the number of a `Token`, with the same lineage in each call:
/// `Token { lineage: Lineage::new(0), number: holds.token() }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowHolds {
    tokens: Vec<(String, u64)>,
}

impl RowLock {
    /// Locks these names together, in byte order, whatever order they have here: so two calls with names in common
    /// never wait for each other. At most 100 names of at most 512 bytes.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        Self { names, table: TABLE.to_owned(), waiting: Waiting::AsTheServer, is_first: true }
    }

    /// Uses this table, whose name may begin with a schema, in place of `leasehold_row_locks`. On MySQL and MariaDB it
    /// must be a table of InnoDB, as [`schema`](Self::schema) creates it: in a table of another storage engine, such as
    /// MyISAM, nothing excludes other transactions. The call does not check this, which would cost a round trip.
    pub fn table(mut self, table: &str) -> Self {
        table.clone_into(&mut self.table);
        self
    }

    /// Fails with [`Taken`](super::RowLockErrorKind::Taken) if another transaction has locked one of the names. If a
    /// name was never used before, the call can wait for another transaction that creates it: for 10 ms on PostgreSQL,
    /// for a second on MySQL and MariaDB.
    pub fn no_wait(mut self) -> Self {
        self.waiting = Waiting::Not;
        self
    }

    /// Locks those of the names that no other transaction has locked, and returns only these. Fails with
    /// [`Taken`](super::RowLockErrorKind::Taken) if there are none. On SQLite all names are locked, or none. As with
    /// [`no_wait`](Self::no_wait), the call can wait for names that are created, once for each.
    pub fn skip_locked(mut self) -> Self {
        self.waiting = Waiting::Skip;
        self
    }

    /// Waits at most this long for each name, rounded up to milliseconds; on MySQL and MariaDB rounded up to seconds.
    /// Later statements of the transaction have the time limit that they had before.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.waiting = Waiting::AtMost(limit);
        self
    }

    /// Locks the names even if the transaction has written before, which only PostgreSQL tells. Then two transactions
    /// can wait for each other; the server ends one of them with a [`Conflict`](super::RowLockErrorKind::Conflict).
    pub fn after_writes(mut self) -> Self {
        self.is_first = false;
        self
    }

    /// The statement that creates the table of the locks. Run it once, as a user with the right to create tables; the
    /// users that lock need the rights `SELECT`, `INSERT` and `UPDATE` on the table.
    #[must_use]
    pub fn schema(&self, dialect: Dialect) -> String {
        let table = &self.table;
        match dialect {
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {table} (name text COLLATE \"C\" PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50)"
            ),
            Dialect::Mysql => format!(
                "CREATE TABLE IF NOT EXISTS {table} (name varbinary({MAX_NAME_BYTES}) NOT NULL PRIMARY KEY, token bigint NOT NULL) ENGINE = InnoDB"
            ),
            Dialect::Sqlite => format!(
                "CREATE TABLE IF NOT EXISTS {table} (name text NOT NULL PRIMARY KEY, token integer NOT NULL) WITHOUT ROWID"
            ),
        }
    }

    /// The names in byte order.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn table_name(&self) -> &str {
        &self.table
    }

    /// Checks the names and options before anything is sent.
    pub(super) fn check(&self) -> Result<(), RowLockError> {
        if self.names.is_empty() || self.names.len() > MAX_NAMES {
            let count = self.names.len();
            return Err(RowLockError::invalid(format!(
                "row lock of {count} names: one call locks 1 to {MAX_NAMES} names"
            )));
        }
        // PostgreSQL cannot store the character 0.
        let is_wrong = |name: &&String| name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0');
        if let Some(name) = self.names.iter().find(is_wrong) {
            return Err(RowLockError::invalid(format!(
                "row lock of a name with {} bytes: a name has 1 to {MAX_NAME_BYTES} bytes, and none of them is 0",
                name.len()
            )));
        }
        if !is_plain_table(&self.table) {
            return Err(RowLockError::invalid(format!(
                "the table {:?} of row locks: its name may only have letters, digits and _",
                self.table
            )));
        }
        if let Waiting::AtMost(limit) = self.waiting
            && (limit.is_zero() || limit > MAX_WAIT)
        {
            return Err(RowLockError::invalid(format!(
                "row lock with a wait of {limit:?}: it may be up to {MAX_WAIT:?}, and no_wait() is for none"
            )));
        }
        Ok(())
    }

    /// What an error of this call is about.
    pub(super) fn subject(&self, dialect: Dialect) -> Subject {
        Subject {
            what: format!("row lock of {}", self.described()),
            schema: self.schema(dialect),
            rights: format!("SELECT, INSERT and UPDATE on {}", self.table),
            when_not_first: "lock all names in one call before the first write, or allow it by after_writes()",
        }
    }

    /// The first names, for a message.
    fn described(&self) -> String {
        match &self.names[..] {
            [name] => format!("{name:?}"),
            [first, second] => format!("{first:?} and {second:?}"),
            [first, rest @ ..] => format!("{first:?} and {} more names", rest.len()),
            [] => "no name".to_owned(),
        }
    }

    /// The locked names, by the places of the names (from 1) and their tokens.
    pub(super) fn holds(&self, tokens: Vec<(i64, i64)>) -> Result<RowHolds, RowLockError> {
        let named = |(place, token): (i64, i64)| {
            let place = usize::try_from(place).ok()?.checked_sub(1)?;
            Some((self.names.get(place)?.clone(), u64::try_from(token).ok().filter(|token| *token > 0)?))
        };
        let mut tokens: Vec<_> = tokens.into_iter().map(named).collect::<Option<_>>().ok_or_else(|| {
            RowLockError::invalid(format!("the table {} has tokens below 1: correct them", self.table))
        })?;
        tokens.sort_unstable();
        Ok(RowHolds { tokens })
    }
}

impl RowHolds {
    /// The token of the only name, or of the first in byte order that was locked. Each later transaction that locks the
    /// same name and commits has a larger one.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.tokens.first().map_or(0, |(_, token)| *token)
    }

    /// The token of a name; `None` if the call did not lock it.
    #[must_use]
    pub fn token_of(&self, name: &str) -> Option<u64> {
        self.tokens.iter().find(|(locked, _)| locked == name).map(|(_, token)| *token)
    }

    /// The locked names in byte order, with their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tokens.iter().map(|(name, token)| (name.as_str(), *token))
    }
}

impl From<&str> for RowLock {
    fn from(name: &str) -> Self {
        Self::new([name])
    }
}

impl From<&String> for RowLock {
    fn from(name: &String) -> Self {
        Self::new([name])
    }
}

impl From<String> for RowLock {
    fn from(name: String) -> Self {
        Self::new([name])
    }
}

impl<const N: usize> From<[&str; N]> for RowLock {
    fn from(names: [&str; N]) -> Self {
        Self::new(names)
    }
}

impl<const N: usize> From<[String; N]> for RowLock {
    fn from(names: [String; N]) -> Self {
        Self::new(names)
    }
}

impl From<&[String]> for RowLock {
    fn from(names: &[String]) -> Self {
        Self::new(names)
    }
}

impl From<Vec<&str>> for RowLock {
    fn from(names: Vec<&str>) -> Self {
        Self::new(names)
    }
}

impl From<&[&str]> for RowLock {
    fn from(names: &[&str]) -> Self {
        Self::new(names.iter().copied())
    }
}

impl From<Vec<String>> for RowLock {
    fn from(names: Vec<String>) -> Self {
        Self::new(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_locked_in_byte_order_and_once() {
        let lock = RowLock::new(["b", "B", "ä", "a", "b", "a "]);
        assert_eq!(lock.names(), ["B", "a", "a ", "b", "ä"]);
    }

    #[test]
    fn all_usual_collections_of_names_are_accepted() {
        let (a, b) = (String::from("a"), String::from("b"));
        let owned = [a.clone(), b];
        for lock in [RowLock::from(&a), RowLock::from(a.clone()), RowLock::from("a")] {
            assert_eq!(lock.names(), ["a"]);
        }
        for lock in [
            RowLock::from(["a", "b"]),
            RowLock::from(&["a", "b"][..]),
            RowLock::from(vec!["a", "b"]),
            RowLock::from(&owned[..]),
            RowLock::from(owned.to_vec()),
            RowLock::from(owned),
        ] {
            assert_eq!(lock.names(), ["a", "b"]);
        }
    }

    #[test]
    fn wrong_names_tables_and_waits_are_refused() {
        let none: [&str; 0] = [];
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        for lock in [
            RowLock::new(none),
            RowLock::from(many),
            RowLock::from(""),
            RowLock::from("a\0b"),
            RowLock::from("a".repeat(MAX_NAME_BYTES + 1)),
            RowLock::from("a").table("t; DROP TABLE t"),
            RowLock::from("a").table("a.b.c"),
            RowLock::from("a").wait(Duration::ZERO),
            RowLock::from("a").wait(Duration::MAX),
        ] {
            let error = lock.check().unwrap_err();
            assert_eq!(error.kind(), crate::RowLockErrorKind::Invalid, "{lock:?}");
        }
        let good = RowLock::from("a".repeat(MAX_NAME_BYTES)).table("shop.locks").wait(Duration::from_secs(1));
        assert!(good.check().is_ok());
    }

    #[test]
    fn a_token_below_one_is_no_token() {
        let lock = RowLock::from(["a", "b"]);
        assert_eq!(lock.holds(vec![(2, 7), (1, 3)]).unwrap().token(), 3);
        for tokens in [vec![(1, 0)], vec![(1, -1)], vec![(3, 1)], vec![(0, 1)]] {
            assert!(lock.holds(tokens).is_err());
        }
    }
}

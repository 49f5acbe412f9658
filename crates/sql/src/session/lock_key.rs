//! How the name of a lock becomes the key by which the database knows the lock.
//!
//! A lock of a session has no table: the database knows it by a number (PostgreSQL) or by a short text (MySQL and
//! MariaDB). leasehold derives the key from the name by a hash of its own. The URL option `lock_key` chooses the
//! derivation of another program, so that leasehold and that program exclude each other.
//!
//! Two names can have the same key. Then a hold of one name makes the other name taken: a collision delays a claim and
//! never breaks exclusion.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(test)]
mod tests;

use std::fmt;

use leasehold_core::{Error, Fault};
use sha2::{Digest, Sha256};

use crate::database::Failed;

/// The key by which the database knows a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// PostgreSQL: the argument of `pg_advisory_lock(bigint)`.
    #[cfg(feature = "postgres")]
    Bigint(i64),
    /// PostgreSQL: the arguments of `pg_advisory_lock(int, int)`. No such key is equal to a [`Bigint`](Self::Bigint).
    #[cfg(feature = "postgres")]
    Ints(i32, i32),
    /// MySQL and MariaDB: the name that `GET_LOCK` gets.
    #[cfg(feature = "mysql")]
    Name(String),
}

/// As an operator would write it in a call of the lock function of the database.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "postgres")]
            Self::Bigint(key) => write!(f, "{key}"),
            #[cfg(feature = "postgres")]
            Self::Ints(first, second) => write!(f, "{first}, {second}"),
            #[cfg(feature = "mysql")]
            Self::Name(name) => write!(f, "'{}'", name.replace('\'', "''")),
        }
    }
}

impl Key {
    /// A key of leasehold's own for `what` beside the lock with this key: for waiters, for example. It is the same for
    /// all names that have this key.
    pub(crate) fn beside(&self, what: &str) -> Self {
        let hash = own_hash(what, &[self.to_string().as_bytes()]);
        match self {
            #[cfg(feature = "postgres")]
            Self::Bigint(_) | Self::Ints(..) => postgres::own_key(&hash),
            #[cfg(feature = "mysql")]
            Self::Name(_) => mysql::own_key(what, hash),
        }
    }
}

/// The derivation of keys from names, as the URL option `lock_key` chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL has fewer derivations"))]
pub(crate) enum LockKey {
    /// leasehold's own: a hash of the name, in a form that no other program makes.
    #[default]
    Own,
    /// This number, whatever the name is; without a number, the name is the number.
    Bigint(Option<i64>),
    /// These two numbers, whatever the name is; without numbers, the name is the two numbers.
    Ints(Option<(i32, i32)>),
    /// The name itself.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "PostgreSQL has numbers as keys"))]
    Name,
    /// npm `advisory-lock` and `pg-mutex-lock`.
    AdvisoryLock,
    /// DistributedLock of .NET.
    Dotnet,
    /// Flyway: the name is `SCHEMA.TABLE`, the history table.
    Flyway,
    /// PyPI `pals`: the name is `APPLICATION.NAME`.
    Pals,
    /// The migrations of Rails: the name is the database.
    Rails,
    /// PyPI `django-pglocks` 2 (`django_pg_utils`).
    Sha256Be,
    /// PyPI `django-pglock`.
    Sha256Le,
    /// PyPI `sqlalchemy-dlock`.
    SqlalchemyDlock,
    /// `PgAdvisoryLock` of sqlx.
    Sqlx,
    /// `PostgreSqlStore` of Symfony.
    Symfony,
    /// PyPI `tooz`.
    Tooz,
}

impl LockKey {
    /// The derivation that this value of the URL option `lock_key` chooses, if it is one of `known`.
    fn parse(text: &str, known: &[(&str, Self)]) -> Result<Self, Error> {
        let found = known.iter().find(|(word, _)| *word == text).map(|&(_, lock_key)| lock_key);
        let has_numbers = known.iter().any(|(word, _)| *word == "bigint");
        let numbered = || match text.split_once(':')? {
            ("bigint", number) => Some(Self::Bigint(Some(number.parse().ok()?))),
            ("int,int", numbers) => Some(Self::Ints(Some(two_numbers(numbers)?))),
            _ => None,
        };
        found.or_else(|| numbered().filter(|_| has_numbers)).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
            let numbers = if has_numbers { "bigint:N, int,int:A,B, " } else { "" };
            // The error does not show the value: it may be the end of a password that contains a `?`.
            Error::misconfigured(format!(
                "the URL option lock_key is unknown: {numbers}{} are known",
                words.join(", ")
            ))
        })
    }
}

/// Two numbers with a comma between them.
fn two_numbers(text: &str) -> Option<(i32, i32)> {
    let (first, second) = text.split_once(',')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// The hash of leasehold's own keys. `space` keeps different kinds of keys apart; it contains no byte 0.
fn own_hash(space: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix("leasehold ");
    hash.update(space);
    for part in parts {
        hash.update([0]);
        hash.update(part);
    }
    hash.finalize().into()
}

/// The history table that a name of the form `SCHEMA.TABLE` means, as Flyway writes it, with this quotation mark.
fn flyway_table(name: &str, quote: char) -> Result<String, Failed> {
    match name.split_once('.') {
        Some((schema, table))
            if !schema.is_empty() && !table.is_empty() && !table.contains('.') && !name.contains(quote) =>
        {
            Ok(format!("{quote}{schema}{quote}.{quote}{table}{quote}"))
        }
        _ => Err(unfit(
            "with lock_key=flyway a name is SCHEMA.TABLE, the history table, such as public.flyway_schema_history",
        )),
    }
}

/// `String.hashCode` of Java.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// The number of the advisory lock of migrations in Rails.
fn rails_number(database: &str) -> i64 {
    const MIGRATOR_SALT: i64 = 2_053_462_845;
    // The largest product is below 2^63.
    MIGRATOR_SALT * i64::from(crc32fast::hash(database.as_bytes()))
}

/// The error for a name that has no key in the chosen derivation.
fn unfit(why: &str) -> Failed {
    Failed::new(Fault::Misconfigured, why)
}

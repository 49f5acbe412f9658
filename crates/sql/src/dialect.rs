//! The database systems whose SQL the texts for users are written in, and the names that these texts may contain.

/// A database system, for a text of SQL that a program of yours sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// SQLite.
    Sqlite,
}

/// Whether the name of a column needs no quotes in any of these systems: ASCII letters, digits and `_`.
pub(crate) fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Whether the name of a table is plain; it may begin with the name of its schema.
pub(crate) fn is_plain_table(name: &str) -> bool {
    name.split('.').count() <= 2 && name.split('.').all(is_plain)
}

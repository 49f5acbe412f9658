//! Checks that the tables are as leasehold makes them, so that a write to them has no other effects, whatever other
//! users create in this database.
//!
//! Columns and rules of a table cannot call functions of other users. In statements the server prefers its own
//! functions to functions of users with the same names
//! (<https://dev.mysql.com/doc/refman/8.4/en/function-resolution.html>), unless a space precedes the bracket.

use mysql_async::Row;

use super::{conn::ResultSet, rows::ColumnReader};
use crate::database::{ColumnsByType, Failed, altered_table, unusable_table};

/// A table: its name, the columns that are read and written, and its key.
type Table = (&'static str, ColumnsByType, &'static str);

/// The tables of locks.
const TABLES: [Table; 3] = [
    ("leasehold_meta", &[("smallint", &["one"]), ("int", &["version"]), ("char(32)", &["lineage"])], "(one)"),
    (
        "leasehold_lock",
        &[
            ("varbinary(512)", &["name"]),
            ("binary(16)", &["holder"]),
            ("varchar(255)", &["owner"]),
            ("int", &["tokens", "claims"]),
            ("smallint", &["previous", "ended"]),
            ("bigint", &["token", "since", "expires", "client", "ended_upto", "ended_until", "stamp"]),
        ],
        "(name)",
    ),
    (
        "leasehold_claim",
        &[
            ("varbinary(512)", &["name"]),
            ("binary(16)", &["id"]),
            ("varchar(255)", &["owner"]),
            ("int", &["tokens"]),
            ("smallint", &["stand", "mode", "previous"]),
            ("bigint", &["place", "count", "most", "token", "since", "expires", "claim_time", "place_since"]),
            ("bigint", &["place_expires", "client", "stamp"]),
        ],
        "(name, id)",
    ),
];
/// The table of memos. Tables that an earlier version of leasehold made lack it.
const MEMO_TABLE: Table = (
    "leasehold_memo",
    &[
        ("varbinary(512)", &["name"]),
        ("varchar(16)", &["kind"]),
        ("char(32)", &["lineage"]),
        ("binary(16)", &["id"]),
        ("binary(32)", &["print"]),
        ("bigint", &["number", "token", "ends"]),
        ("mediumblob", &["content"]),
    ],
    "(name)",
);

/// The definitions found under the names of our tables.
pub(super) struct Definitions {
    /// Per table: its kind.
    tables: Vec<(String, String)>,
    /// Per column: its table, its name, its type.
    columns: Vec<(String, String, String)>,
    /// Per column of a unique key: the table, the key, the column.
    keys: Vec<(String, String, String)>,
    /// Per trigger: its table, its name.
    triggers: Vec<(String, String)>,
}

impl Definitions {
    /// The number of statements in `definitions.sql`.
    pub(super) const STATEMENTS: usize = 4;

    /// Decodes the results of `definitions.sql`.
    pub(super) fn read(sets: &[ResultSet]) -> Result<Self, Failed> {
        let rows = |index: usize| sets.get(index).map_or(&[][..], |set| &set.rows);
        fn decode_all<T>(
            rows: &[Row],
            decode: impl Fn(&mut ColumnReader<'_>) -> Result<T, Failed>,
        ) -> Result<Vec<T>, Failed> {
            rows.iter().map(|row| decode(&mut ColumnReader::new(row))).collect()
        }
        Ok(Self {
            tables: decode_all(rows(0), |row| {
                let (table, kind): (_, String) = (row.text()?, row.next()?);
                let engine: Option<String> = row.next()?;
                let engine_suffix = engine.map_or_else(String::new, |engine| format!(" of {engine}"));
                Ok((table, kind.to_lowercase() + &engine_suffix))
            })?,
            columns: decode_all(rows(1), |row| {
                let (table, column, kind) = (row.text()?, row.text()?, row.text()?);
                Ok((table, column, format!("{kind} {}", row.text()?).trim_end().to_owned()))
            })?,
            keys: decode_all(rows(2), |row| {
                let (table, key) = (row.text()?, row.text()?);
                // MySQL also has keys on expressions, which have no column.
                let column: Option<String> = row.next()?;
                let column = column.unwrap_or_else(|| "an expression".to_owned());
                // Set if the key covers only the beginning of the column.
                let prefix_length: Option<u64> = row.next()?;
                Ok((
                    table,
                    key,
                    column + &prefix_length.map_or_else(String::new, |length| format!("({length})")),
                ))
            })?,
            triggers: decode_all(rows(3), |row| Ok((row.text()?, row.text()?)))?,
        })
    }

    /// Whether the table `leasehold_meta` exists.
    pub(super) fn has_meta(&self) -> bool {
        self.tables.iter().any(|(table, _)| table == TABLES[0].0)
    }

    /// Takes the definition of the table of memos out of these definitions.
    pub(super) fn take_memos(&mut self) -> Self {
        let is_memo = |table: &String| table == MEMO_TABLE.0;
        Self {
            tables: self.tables.extract_if(.., |(table, _)| is_memo(table)).collect(),
            columns: self.columns.extract_if(.., |(table, ..)| is_memo(table)).collect(),
            keys: self.keys.extract_if(.., |(table, ..)| is_memo(table)).collect(),
            triggers: self.triggers.extract_if(.., |(table, _)| is_memo(table)).collect(),
        }
    }

    /// Whether the table of memos exists, by its [own](Self::take_memos) definition. Fails if it is not as leasehold
    /// makes it.
    pub(super) fn check_memos(&self) -> Result<bool, Failed> {
        if self.tables.is_empty() {
            return Ok(false);
        }
        self.check_trust()?;
        self.check_table(&MEMO_TABLE)?;
        Ok(true)
    }

    /// Checks that reading and writing the tables executes no code of other users.
    pub(super) fn check_trust(&self) -> Result<(), Failed> {
        if let Some((table, kind)) = self.tables.iter().find(|(_, kind)| kind != "base table of InnoDB") {
            return Err(unusable_table(
                table,
                format!("was not made by leasehold: {table} is not a table of InnoDB but a {kind}"),
            ));
        }
        if let Some((table, trigger)) = self.triggers.first() {
            let remedy = "which would change what locks do: drop it, or let leasehold create its tables in another database";
            return Err(unusable_table(table, format!("has the trigger {trigger}, {remedy}")));
        }
        Ok(())
    }

    /// Checks that the tables of locks have exactly the columns that are read and written, and no unique keys but ours.
    pub(super) fn check_columns(&self) -> Result<(), Failed> {
        TABLES.iter().try_for_each(|table| self.check_table(table))
    }

    /// Checks the columns and the unique keys of one table.
    fn check_table(&self, &(table, columns, key): &Table) -> Result<(), Failed> {
        if !self.tables.iter().any(|(table_name, _)| table_name == table) {
            return Err(unusable_table(
                table,
                "does not exist, or this user has no right to it: run the output of `leasehold schema`",
            ));
        }
        for (kind, names) in columns {
            for name in *names {
                let column = self
                    .columns
                    .iter()
                    .find(|(owner_table, column, _)| owner_table == table && column == name);
                let actual = column.map_or("missing", |(.., actual)| actual);
                if without_width(actual) != *kind {
                    return Err(altered_table(
                        table,
                        format!("its column {name} must be {kind} but is {actual}"),
                    ));
                }
            }
        }
        let is_expected = |name: &String| columns.iter().any(|(_, names)| names.contains(&name.as_str()));
        if let Some((_, extra, _)) =
            self.columns.iter().find(|(owner_table, name, _)| owner_table == table && !is_expected(name))
        {
            return Err(altered_table(table, format!("its column {extra} is not one of leasehold's")));
        }
        let keys = self.keys_of(table);
        if keys != key {
            return Err(altered_table(table, format!("its unique keys must be {key} but are {keys}")));
        }
        Ok(())
    }

    /// The unique keys of a table, as text: the columns of each in brackets.
    fn keys_of(&self, table: &str) -> String {
        let key_columns: Vec<_> = self.keys.iter().filter(|(owner_table, ..)| owner_table == table).collect();
        let columns = |key: &[&(String, String, String)]| {
            let columns: Vec<&str> = key.iter().map(|(.., column)| column.as_str()).collect();
            format!("({})", columns.join(", "))
        };
        let keys: Vec<String> =
            key_columns.chunk_by(|(_, one, _), (_, other, _)| one == other).map(columns).collect();
        if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
    }
}

/// The type of a column, without the display width that MariaDB adds to a number.
fn without_width(kind: &str) -> String {
    match kind
        .split_once("int(")
        .map(|(size, rest)| (size, rest.trim_start_matches(|c: char| c.is_ascii_digit())))
    {
        Some((size, rest)) => format!("{size}int{}", rest.strip_prefix(')').unwrap_or(rest)),
        None => kind.to_owned(),
    }
}

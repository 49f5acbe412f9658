//! Checks that the tables in a file are word for word as leasehold makes them. The creator of the file can have put
//! anything under the names of leasehold's tables: triggers, views, and columns, checks and defaults with expressions.

use leasehold_core::Fault;
use rusqlite::{Connection, Error};

use super::SCHEMA;
use crate::database::{Failed, misconfigured};

/// Reads every object that has one of our names, or is attached to one of our tables.
const FIND_OBJECTS: &str = "SELECT type, name, tbl_name, rootpage > 0, coalesce(sql, '') FROM sqlite_schema \
    WHERE lower(name) IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo', 'leasehold_called') \
    OR lower(tbl_name) IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo') ORDER BY type DESC, name";

/// The table of memos.
const MEMO_TABLE: &str = "leasehold_memo";

/// An object in the schema of a file.
struct SchemaObject {
    /// A table, an index, a view or a trigger.
    kind: String,
    name: String,
    /// The table to which it belongs.
    table: String,
    /// Whether its rows are stored in the file: not so for a view or a virtual table.
    has_rows: bool,
    /// The tokens of the statement that created it.
    sql_tokens: Vec<String>,
}

/// The objects with the names of our tables, and those attached to our tables.
pub(super) struct Definitions(Vec<SchemaObject>);

impl Definitions {
    pub(super) fn read(connection: &Connection) -> Result<Self, Error> {
        let mut statement = connection.prepare(FIND_OBJECTS)?;
        let object = |row: &rusqlite::Row<'_>| {
            let (kind, name, table, has_rows) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(SchemaObject {
                kind,
                name,
                table,
                has_rows,
                sql_tokens: sql_tokens(&row.get::<_, String>(4)?),
            })
        };
        Ok(Self(statement.query_map([], object)?.collect::<Result<_, _>>()?))
    }

    /// Whether there is any such object.
    pub(super) fn any_exist(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks that `leasehold_meta` can be read without executing code of another user.
    pub(super) fn check_trust(&self) -> Result<(), Failed> {
        for SchemaObject { kind, name, table, has_rows, .. } in &self.0 {
            match kind.as_str() {
                "trigger" => {
                    return Err(unusable(&format!(
                        "the trigger {name} on its table {table} would change what locks do: drop it"
                    )));
                }
                "table" | "view" if !has_rows => {
                    let kind = if kind == "view" { "view" } else { "virtual table" };
                    return Err(unusable(&format!("{name} was not made by leasehold: it is a {kind}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the table `leasehold_meta` exists.
    pub(super) fn has_meta(&self) -> bool {
        self.0.iter().any(|object| object.kind == "table" && object.name == "leasehold_meta")
    }

    /// Whether the table of memos exists. Tables that an earlier version of leasehold made lack it.
    pub(super) fn has_memos(&self) -> bool {
        self.0.iter().any(|object| object.kind == "table" && object.name == MEMO_TABLE)
    }

    /// Checks that every object is as leasehold makes it, and that none is missing or added.
    pub(super) fn check_statements(&self) -> Result<(), Failed> {
        let expected = Self::expected().map_err(|error| Failed::new(Fault::Internal, error.to_string()))?;
        let kind_and_name = |object: &SchemaObject| (object.kind.clone(), object.name.clone());
        for object in &self.0 {
            let (kind, name) = kind_and_name(object);
            let Some(other) = expected.0.iter().find(|other| kind_and_name(other) == kind_and_name(object))
            else {
                return Err(unusable(&format!(
                    "the {kind} {name} on its table {} was not made by leasehold: drop it",
                    object.table
                )));
            };
            if object.sql_tokens != other.sql_tokens {
                let first_difference = object
                    .sql_tokens
                    .iter()
                    .zip(&other.sql_tokens)
                    .take_while(|(actual, expected_text)| actual == expected_text)
                    .count();
                let text_from = |sql_tokens: &[String]| {
                    sql_tokens[first_difference..].iter().take(4).cloned().collect::<Vec<_>>().join(" ")
                };
                let (actual_text, expected_text) =
                    (text_from(&object.sql_tokens), text_from(&other.sql_tokens));
                return Err(unusable(&format!(
                    "its {kind} {name} was not made by leasehold, or altered: it says {actual_text:?} where leasehold says {expected_text:?}"
                )));
            }
        }
        match expected
            .0
            .iter()
            .filter(|other| other.table != MEMO_TABLE || self.has_memos())
            .find(|other| !self.0.iter().any(|object| kind_and_name(object) == kind_and_name(other)))
        {
            Some(missing) => Err(unusable(&format!("its {} {} is missing", missing.kind, missing.name))),
            None => Ok(()),
        }
    }

    /// The objects as leasehold makes them.
    fn expected() -> Result<Self, Error> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(SCHEMA)?;
        Self::read(&connection)
    }
}

fn unusable(what: &str) -> Failed {
    let remedy = "or use another file, or drop everything that is named leasehold_* while no lock is held";
    misconfigured(&format!("{what}; {remedy}"))
}

/// The tokens of a statement as SQLite reads them, without comments and spaces, which have no meaning.
fn sql_tokens(text: &str) -> Vec<String> {
    let mut sql_tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
        let end_after = |from: usize, end: &str| {
            rest[from..].find(end).map_or(rest.len(), |index| from + index + end.len())
        };
        let (end, is_token) = match first {
            _ if rest.starts_with("--") => (end_after(2, "\n"), false),
            _ if rest.starts_with("/*") => (end_after(2, "*/"), false),
            _ if first.is_ascii_whitespace() => (1, false),
            '\'' | '"' | '`' => (end_after(1, &first.to_string()), true),
            '[' => (end_after(1, "]"), true),
            _ if is_word(first) => (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true),
            _ => (first.len_utf8(), true),
        };
        if is_token {
            sql_tokens.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    sql_tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_schema_is_accepted_and_comments_are_ignored() {
        Definitions::expected().unwrap().check_statements().unwrap();
        assert_eq!(sql_tokens("a -- b\n (c/*, d*/,\te)"), ["a", "(", "c", ",", "e", ")"]);
    }

    /// Otherwise a string literal could hide words that SQLite takes for a part of the table.
    #[test]
    fn a_comment_in_a_string_is_text() {
        assert_eq!(sql_tokens("x '--' CHECK (1) '\n',"), ["x", "'--'", "CHECK", "(", "1", ")", "'\n'", ","]);
        assert_eq!(sql_tokens("\"/*\" y [--] z '/*"), ["\"/*\"", "y", "[--]", "z", "'/*"]);
        assert_eq!(sql_tokens("a /* it's */ b -- it's\n c /* open"), ["a", "b", "c"]);
        assert_eq!(sql_tokens("'it''s' 1"), ["'it'", "'s'", "1"]);
    }
}

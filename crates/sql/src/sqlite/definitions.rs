//! Checks that the tables in a file are word for word as leasehold makes them. The creator of the file may have put
//! anything under our names: triggers, views, and columns, checks and defaults with expressions.

use leasehold_core::Fault;
use rusqlite::{Connection, Error};

use super::SCHEMA;
use crate::database::{Failed, misconfigured};

const FOUND: &str = "SELECT type, name, tbl_name, rootpage > 0, coalesce(sql, '') FROM sqlite_schema \
    WHERE lower(name) IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_called') \
    OR lower(tbl_name) IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim') ORDER BY type DESC, name";

/// An object in the schema of a file.
struct Thing {
    /// A table, an index, a view or a trigger.
    kind: String,
    name: String,
    table: String,
    /// Whether its rows are stored in the file: not so for a view or a virtual table.
    has_rows: bool,
    words: Vec<String>,
}

/// The objects with the names of our tables, and those attached to our tables.
pub(super) struct Definitions(Vec<Thing>);

impl Definitions {
    pub(super) fn read(connection: &Connection) -> Result<Self, Error> {
        let mut found = connection.prepare(FOUND)?;
        let thing = |row: &rusqlite::Row<'_>| {
            let (kind, name, table, has_rows) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Thing { kind, name, table, has_rows, words: words(&row.get::<_, String>(4)?) })
        };
        Ok(Self(found.query_map([], thing)?.collect::<Result<_, _>>()?))
    }

    pub(super) fn is_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks that `leasehold_meta` can be read without executing code of another user.
    pub(super) fn check_trust(&self) -> Result<(), Failed> {
        for Thing { kind, name, table, has_rows, .. } in &self.0 {
            match kind.as_str() {
                "trigger" => {
                    return Err(wrong(&format!(
                        "the trigger {name} on its table {table} would change what locks do: drop it"
                    )));
                }
                "table" | "view" if !has_rows => {
                    let kind = if kind == "view" { "view" } else { "virtual table" };
                    return Err(wrong(&format!("{name} was not made by leasehold: it is a {kind}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the table `leasehold_meta` exists.
    pub(super) fn has_meta(&self) -> bool {
        self.0.iter().any(|thing| thing.kind == "table" && thing.name == "leasehold_meta")
    }

    /// Checks that every object is as leasehold makes it, and that none is missing or added.
    pub(super) fn check_words(&self) -> Result<(), Failed> {
        let ours = Self::ours().map_err(|error| Failed::new(Fault::Internal, error.to_string()))?;
        let named = |thing: &Thing| (thing.kind.clone(), thing.name.clone());
        for thing in &self.0 {
            let (kind, name) = named(thing);
            let Some(other) = ours.0.iter().find(|other| named(other) == named(thing)) else {
                return Err(wrong(&format!(
                    "the {kind} {name} on its table {} was not made by leasehold: drop it",
                    thing.table
                )));
            };
            if thing.words != other.words {
                let at = thing.words.iter().zip(&other.words).take_while(|(has, ours)| has == ours).count();
                let from =
                    |words: &[String]| words[at..].iter().take(4).cloned().collect::<Vec<_>>().join(" ");
                let (has, ours) = (from(&thing.words), from(&other.words));
                return Err(wrong(&format!(
                    "its {kind} {name} was not made by leasehold, or altered: it says {has:?} where leasehold says {ours:?}"
                )));
            }
        }
        match ours.0.iter().find(|other| !self.0.iter().any(|thing| named(thing) == named(other))) {
            Some(missing) => Err(wrong(&format!("its {} {} is missing", missing.kind, missing.name))),
            None => Ok(()),
        }
    }

    fn ours() -> Result<Self, Error> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(SCHEMA)?;
        Self::read(&connection)
    }
}

fn wrong(what: &str) -> Failed {
    let or = "or use another file, or drop everything that is named leasehold_* while no lock is held";
    misconfigured(&format!("{what}; {or}"))
}

/// The tokens of a text as SQLite reads it, without comments and spaces, which have no meaning.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
        let upto =
            |from: usize, end: &str| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
        let (end, counts) = match first {
            _ if rest.starts_with("--") => (upto(2, "\n"), false),
            _ if rest.starts_with("/*") => (upto(2, "*/"), false),
            _ if first.is_ascii_whitespace() => (1, false),
            '\'' | '"' | '`' => (upto(1, &first.to_string()), true),
            '[' => (upto(1, "]"), true),
            _ if is_word(first) => (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true),
            _ => (first.len_utf8(), true),
        };
        if counts {
            words.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_schema_is_accepted_and_comments_are_ignored() {
        Definitions::ours().unwrap().check_words().unwrap();
        assert_eq!(words("a -- b\n (c/*, d*/,\te)"), ["a", "(", "c", ",", "e", ")"]);
    }

    /// Otherwise a string literal could hide words that SQLite takes for a part of the table.
    #[test]
    fn a_comment_in_a_string_is_text() {
        assert_eq!(words("x '--' CHECK (1) '\n',"), ["x", "'--'", "CHECK", "(", "1", ")", "'\n'", ","]);
        assert_eq!(words("\"/*\" y [--] z '/*"), ["\"/*\"", "y", "[--]", "z", "'/*"]);
        assert_eq!(words("a /* it's */ b -- it's\n c /* open"), ["a", "b", "c"]);
        assert_eq!(words("'it''s' 1"), ["'it'", "'s'", "1"]);
    }
}

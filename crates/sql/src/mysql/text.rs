//! Builds statements as text: several of them share one round trip, which prepared statements cannot.
//!
//! All values are inserted as digits only, so none of them can be taken for SQL.

use std::{fmt::Write, sync::OnceLock};

use leasehold_core::ClaimId;

/// The time of the database, read after the row in question was locked, not at the begin of the statement.
pub(super) const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// Sets the floor: the largest token of all forgotten names, which is in the row without a name. If the clock was
/// ahead for a while, the floor may be larger than the time now. This is a statement of its own, because a statement
/// cannot read the table that it changes.
const FLOOR: &str = "SET @floor = COALESCE((SELECT token FROM leasehold_lock WHERE name = ''), 0)";

/// The statements of one file, with a `:word` in place of each value.
pub(super) struct Sql {
    file: &'static str,
    /// The text without comments, computed at the first use.
    bare: OnceLock<String>,
}

impl Sql {
    pub(super) const fn new(file: &'static str) -> Self {
        Self { file, bare: OnceLock::new() }
    }

    /// The text without its comments.
    pub(super) fn bare(&self) -> &str {
        self.bare.get_or_init(|| {
            let lines = self.file.lines().filter(|line| !line.starts_with("--"));
            lines.collect::<Vec<_>>().join("\n").replace(":now", NOW).replace(":floor", FLOOR)
        })
    }

    /// The statements with each `:word` replaced by its value. A word without a value stays, and the server refuses
    /// such a statement.
    pub(super) fn with(&self, given: &[(&str, &str)]) -> String {
        let bare = self.bare();
        let mut text =
            String::with_capacity(bare.len() + given.iter().map(|(_, value)| value.len()).sum::<usize>());
        let mut parts = bare.split(':');
        text.push_str(parts.next().unwrap_or(""));
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(part.len());
            let (word, rest) = part.split_at(end);
            match given.iter().find(|(given_word, _)| *given_word == word) {
                Some((_, value)) => text.push_str(value),
                None => text.extend([":", word]),
            }
            text.push_str(rest);
        }
        text
    }
}

/// Bytes as a literal.
pub(super) fn bytes(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len() + 3);
    text.push_str("x'");
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text.push('\'');
    text
}

/// Human-readable text as a literal.
pub(super) fn words(words: &str) -> String {
    format!("_utf8mb4 {}", bytes(words.as_bytes()))
}

/// Parts joined by commas.
pub(super) fn list(parts: impl Iterator<Item = String>) -> String {
    joined(parts, ", ")
}

/// Holds as rows of name, id and first token, for an `IN` condition.
pub(super) fn triples<'a>(holds: impl Iterator<Item = (&'a str, ClaimId, i64)>) -> String {
    list(holds.map(|(name, id, first)| format!("({}, {}, {first})", bytes(name.as_bytes()), bytes(&id.0))))
}

/// A condition that matches these claims, each looked up by its key: by its first token, too, where one is given.
pub(super) fn claims<'a>(claims: impl Iterator<Item = (&'a str, ClaimId, Option<i64>)>) -> String {
    let condition = |(name, id, first): (&str, ClaimId, Option<i64>)| {
        let mut condition = format!("name = {} AND id = {}", bytes(name.as_bytes()), bytes(&id.0));
        if let Some(first) = first {
            let _ = write!(condition, " AND token = {first}");
        }
        condition
    };
    joined(claims.map(condition), " OR ")
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push_str(between);
        }
        text.push_str(&part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_their_words() {
        let sql = Sql::new("-- About :names.\nSELECT :now, ':00' WHERE name IN (:names) AND n = :n AND :nn");
        let text = sql.with(&[("names", "x'61:n'"), ("n", "7")]);
        assert_eq!(text, format!("SELECT {NOW}, ':00' WHERE name IN (x'61:n') AND n = 7 AND :nn"));
    }

    #[test]
    fn values_are_written_as_digits_only() {
        assert_eq!(bytes("a'\\ä".as_bytes()), "x'61275cc3a4'");
        assert_eq!(words(""), "_utf8mb4 x''");
        let id = ClaimId([255; 16]);
        let ids = "x'ffffffffffffffffffffffffffffffff'";
        let two = [("a", id, 1), ("b", id, -2)];
        assert_eq!(triples(two.into_iter()), format!("(x'61', {ids}, 1), (x'62', {ids}, -2)"));
        let claims = claims([("a", id, Some(1)), ("b", id, None)].into_iter());
        assert_eq!(
            claims,
            format!("name = x'61' AND id = {ids} AND token = 1 OR name = x'62' AND id = {ids}")
        );
    }
}

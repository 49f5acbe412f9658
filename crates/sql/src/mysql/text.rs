//! Builds statements as text: several statements of text can share one round trip, several prepared statements cannot.
//!
//! All values are inserted as digits only, so none of them can be taken for SQL.

use std::{fmt::Write, sync::OnceLock};

use leasehold_core::ClaimId;

/// The time of the database, read after the row in question was locked, not at the begin of the statement.
pub(super) const NOW: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";

/// Sets `@floor` to the largest token of all names whose rows were deleted; the row with the empty name stores it.
/// Tokens follow the clock, so the floor can be larger than the time now if the clock was ahead for a while. This is a
/// statement of its own, because a statement cannot read the table that it changes.
const FLOOR: &str = "SET @floor = COALESCE((SELECT token FROM leasehold_lock WHERE name = ''), 0)";

/// The statements of one file, with a `:word` in place of each value.
pub(crate) struct Sql {
    file: &'static str,
    /// The text of the file without comments, computed at the first use.
    text_without_comments: OnceLock<String>,
}

impl Sql {
    pub(super) const fn new(file: &'static str) -> Self {
        Self { file, text_without_comments: OnceLock::new() }
    }

    /// The text without its comments.
    pub(crate) fn statements(&self) -> &str {
        self.text_without_comments.get_or_init(|| {
            let lines = self.file.lines().filter(|line| !line.starts_with("--"));
            lines.collect::<Vec<_>>().join("\n").replace(":now", NOW).replace(":floor", FLOOR)
        })
    }

    /// The statements with each `:word` replaced by its value. A word without a value stays, and the server refuses a
    /// statement with such a word.
    pub(super) fn with_values(&self, values: &[(&str, &str)]) -> String {
        let text_without_comments = self.statements();
        let mut text = String::with_capacity(
            text_without_comments.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>(),
        );
        let mut parts = text_without_comments.split(':');
        text.push_str(parts.next().unwrap_or(""));
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(part.len());
            let (placeholder, rest) = part.split_at(end);
            match values.iter().find(|(known_placeholder, _)| *known_placeholder == placeholder) {
                Some((_, value)) => text.push_str(value),
                None => text.extend([":", placeholder]),
            }
            text.push_str(rest);
        }
        text
    }
}

/// Bytes as a literal.
pub(super) fn bytes_literal(bytes: &[u8]) -> String {
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
pub(crate) fn text_literal(words: &str) -> String {
    format!("_utf8mb4 {}", bytes_literal(words.as_bytes()))
}

/// Parts joined by commas.
pub(super) fn comma_list(parts: impl Iterator<Item = String>) -> String {
    joined(parts, ", ")
}

/// Holds as rows of name, id and first token, for an `IN` condition.
pub(super) fn hold_tuples<'a>(holds: impl Iterator<Item = (&'a str, ClaimId, i64)>) -> String {
    comma_list(holds.map(|(name, id, first)| {
        format!("({}, {}, {first})", bytes_literal(name.as_bytes()), bytes_literal(&id.0))
    }))
}

/// A condition that matches these claims, each looked up by its key; if a first token is given for a claim, its row
/// must also have that token.
pub(super) fn claims_condition<'a>(claims: impl Iterator<Item = (&'a str, ClaimId, Option<i64>)>) -> String {
    let condition = |(name, id, first): (&str, ClaimId, Option<i64>)| {
        let mut condition =
            format!("name = {} AND id = {}", bytes_literal(name.as_bytes()), bytes_literal(&id.0));
        if let Some(first) = first {
            let _ = write!(condition, " AND token = {first}");
        }
        condition
    };
    joined(claims.map(condition), " OR ")
}

fn joined(parts: impl Iterator<Item = String>, separator: &str) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push_str(separator);
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
        let text = sql.with_values(&[("names", "x'61:n'"), ("n", "7")]);
        assert_eq!(text, format!("SELECT {NOW}, ':00' WHERE name IN (x'61:n') AND n = 7 AND :nn"));
    }

    #[test]
    fn values_are_written_as_digits_only() {
        assert_eq!(bytes_literal("a'\\ä".as_bytes()), "x'61275cc3a4'");
        assert_eq!(text_literal(""), "_utf8mb4 x''");
        let id = ClaimId([255; 16]);
        let ids = "x'ffffffffffffffffffffffffffffffff'";
        let two = [("a", id, 1), ("b", id, -2)];
        assert_eq!(hold_tuples(two.into_iter()), format!("(x'61', {ids}, 1), (x'62', {ids}, -2)"));
        let claims = claims_condition([("a", id, Some(1)), ("b", id, None)].into_iter());
        assert_eq!(
            claims,
            format!("name = x'61' AND id = {ids} AND token = 1 OR name = x'62' AND id = {ids}")
        );
    }
}

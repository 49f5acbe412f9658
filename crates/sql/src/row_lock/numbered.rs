//! Names as numbered parameters of a statement, for PostgreSQL (`$1`) and SQLite (`?1`).

use std::fmt::Write;

/// The parameters of some names.
pub(super) struct Numbered {
    mark: char,
    cast: &'static str,
    count: usize,
}

impl Numbered {
    pub(super) const fn new(mark: char, cast: &'static str, count: usize) -> Self {
        Self { mark, cast, count }
    }

    fn parameter(&self, number: usize) -> String {
        format!("{}{number}{}", self.mark, self.cast)
    }

    fn joined(&self, part: impl Fn(usize, String) -> String, separator: &str) -> String {
        let parts = (1..=self.count).map(|number| part(number, self.parameter(number)));
        parts.collect::<Vec<_>>().join(separator)
    }

    /// `$1, $2`: for a condition with `IN`.
    pub(super) fn list(&self) -> String {
        self.joined(|_, parameter| parameter, ", ")
    }

    /// A query of the names, as the columns `name` and `place`.
    pub(super) fn places(&self) -> String {
        self.joined(
            |number, parameter| format!("SELECT {parameter} AS name, {number} AS place"),
            " UNION ALL ",
        )
    }

    /// An expression for the place of the name in a column.
    pub(super) fn place_of(&self, column: &str) -> String {
        let mut place = String::from("CAST(CASE");
        for number in 1..=self.count {
            let _ = write!(place, " WHEN {column} = {} THEN {number}", self.parameter(number));
        }
        place.push_str(" END AS bigint)");
        place
    }
}

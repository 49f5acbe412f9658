//! Fences in tables of the application: a row stores the largest token that it was shown, and a statement with a
//! smaller token changes nothing.

use leasehold_core::{Error, ErrorKind, Token};

/// The statements of a fence in a column of a table (Kleppmann, "How to do distributed locking", 2016). They are text
/// for any client of the database, in any transaction. The caller's own parts of a statement (condition, assignments)
/// are inserted unchanged, with their placeholders. The token is a number, so it is written as a literal.
///
/// ```
/// # fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_sql::Fence;
/// # let token = leasehold_core::Token { lineage: leasehold_core::Lineage::new(1), number: 17 };
/// let stock = Fence::new("stock", "fence")?;
/// assert_eq!(stock.column(), "ALTER TABLE stock ADD COLUMN fence bigint NOT NULL DEFAULT 0");
/// // Seal, then read: from here on no earlier holder of the lock can change this row.
/// assert_eq!(stock.seal(token, "item = $1"), "UPDATE stock SET fence = 17 WHERE (item = $1) AND fence <= 17");
/// assert_eq!(
///     stock.update(token, "pieces = pieces - 1", "item = $1"),
///     "UPDATE stock SET pieces = pieces - 1, fence = 17 WHERE (item = $1) AND fence <= 17"
/// );
/// // The number of changed rows, from the database client; none means that the hold was overtaken.
/// assert!(stock.passed(token, 1).is_ok());
/// assert!(stock.passed(token, 0).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    table: String,
    column: String,
}

impl Fence {
    /// A fence in a column of a table. The name of the table may begin with its schema.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a name that is not plain: ASCII letters, digits and `_`.
    pub fn new(table: &str, column: &str) -> Result<Self, Error> {
        let is_plain = |name: &str| {
            let mut characters = name.chars();
            characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
                && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
        };
        if !(table.split('.').all(is_plain) && table.split('.').count() <= 2 && is_plain(column)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a fence in {table:?}.{column:?}: names may only have letters, digits and _"),
            ));
        }
        Ok(Self { table: table.to_owned(), column: column.to_owned() })
    }

    /// The statement that adds the column to the table.
    #[must_use]
    pub fn column(&self) -> String {
        format!("ALTER TABLE {} ADD COLUMN {} bigint NOT NULL DEFAULT 0", self.table, self.column)
    }

    /// The statement that shows the token to rows, so that statements with smaller tokens cannot change these rows any
    /// more. The caller must execute and commit the statement before the first read: then no earlier holder can change
    /// the rows that this read returns.
    #[must_use]
    pub fn seal(&self, token: Token, condition: &str) -> String {
        let (Self { table, column }, number) = (self, token.number);
        format!("UPDATE {table} SET {column} = {number} WHERE ({condition}) AND {column} <= {number}")
    }

    /// The statement that changes the rows that were shown no larger token; it also seals these rows.
    #[must_use]
    pub fn update(&self, token: Token, set: &str, condition: &str) -> String {
        let (Self { table, column }, number) = (self, token.number);
        format!("UPDATE {table} SET {set}, {column} = {number} WHERE ({condition}) AND {column} <= {number}")
    }

    /// Checks the number of rows that a [`seal`](Self::seal) or [`update`](Self::update) statement affected. MySQL
    /// counts rows that changed, unless the client asks for the number of rows found (`client_found_rows` or the like).
    /// Without that option the caller must seal a row only once with each token, because a second seal with the same
    /// token changes no row and looks like a failure.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`] for 0 rows: they were shown a larger token, or no row meets the condition.
    pub fn passed(&self, token: Token, rows: u64) -> Result<(), Error> {
        if rows > 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Fenced,
            format!(
                "{:?} refused token {token}: it has seen a larger one, so this hold was overtaken, or no row matches; nothing was \
                 written",
                self.table
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_accepted() {
        assert!(Fence::new("shop.stock", "fence_2").is_ok());
        for (table, column) in [
            ("", "a"),
            ("a", ""),
            ("a b", "c"),
            ("a;--", "c"),
            ("a", "c=1"),
            ("a.b.c", "d"),
            ("1a", "b"),
            ("a.", "b"),
            ("ä", "b"),
        ] {
            assert!(Fence::new(table, column).unwrap_err().is_invalid(), "{table:?} {column:?}");
        }
    }
}

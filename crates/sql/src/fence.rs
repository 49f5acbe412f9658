//! Fences in tables of the application: a row stores the largest token that it was shown, and a statement with a
//! smaller token changes nothing.

use leasehold_core::{Error, ErrorKind, Token};

use crate::{
    Dialect,
    dialect::{is_plain, is_plain_table},
};

/// The statements of a fence in a column of a table (Kleppmann, "How to do distributed locking", 2016). A row whose
/// column is NULL has seen no token. They are text for any client of the database, in any transaction. **The token is
/// always the first parameter**, so the text is the same for every token, and a client prepares it once. The caller's
/// own parts of a statement (condition, assignments) are inserted unchanged; their parameters follow the token in the
/// order of the text. On PostgreSQL they begin with `$2`, on SQLite with `?2`; on MySQL they are `?`.
///
/// ```
/// # fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_sql::{Fence, Fenced};
/// # let token = leasehold_core::Token { lineage: leasehold_core::Lineage::new(1), number: 17 };
/// let stock = Fence::new("stock", "fence")?;
/// assert_eq!(stock.column(), "ALTER TABLE stock ADD COLUMN fence bigint NOT NULL DEFAULT 0");
/// // Seal, then read: from here on no earlier holder of the lock can change this row.
/// let seal = stock.seal(token, "item = $2");
/// assert_eq!(seal.text, "UPDATE stock SET fence = $1 WHERE COALESCE(fence, 0) <= $1 AND (item = $2)");
/// assert_eq!(seal.token, 17);
/// let sell = stock.update(token, "pieces = pieces - $2", "item = $3");
/// assert_eq!(
///     sell.text,
///     "UPDATE stock SET fence = $1, pieces = pieces - $2 WHERE COALESCE(fence, 0) <= $1 AND (item = $3)"
/// );
/// // The number of changed rows, from the database client.
/// assert!(stock.passed(token, 1).is_ok());
/// // With none, read the fence in the same transaction: was the hold overtaken, or is there no such row?
/// assert_eq!(stock.seen("item = $1"), "SELECT COALESCE(fence, 0) FROM stock WHERE item = $1");
/// assert_eq!(stock.judge(token, Some(18)), Fenced::Overtaken { seen: 18 });
/// assert_eq!(stock.judge(token, None), Fenced::NoRow);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    table: String,
    column: String,
    dialect: Dialect,
}

/// A statement of a [`Fence`], and its first parameter. The parameters of the caller's own parts follow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FenceStatement {
    /// The statement, the same for every token.
    pub text: String,
    /// The token, to be bound as a 64-bit integer.
    pub token: i64,
}

/// What the column of a fence says about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fenced {
    /// The row has seen no larger token.
    Passed,
    /// The row has seen a larger token: the name was granted again after this hold.
    Overtaken {
        /// The larger token.
        seen: u64,
    },
    /// There is no such row.
    NoRow,
}

impl Fence {
    /// A fence in a column of a table of PostgreSQL. The name of the table may begin with its schema.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a name that is not plain: ASCII letters, digits and `_`.
    pub fn new(table: &str, column: &str) -> Result<Self, Error> {
        if !(is_plain_table(table) && is_plain(column)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a fence in {table:?}.{column:?}: names may only have letters, digits and _"),
            ));
        }
        Ok(Self { table: table.to_owned(), column: column.to_owned(), dialect: Dialect::Postgres })
    }

    /// Writes the statements for this database system.
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
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
    pub fn seal(&self, token: Token, condition: &str) -> FenceStatement {
        self.change(token, "", condition)
    }

    /// The statement that changes the rows that were shown no larger token; it also seals these rows.
    #[must_use]
    pub fn update(&self, token: Token, set: &str, condition: &str) -> FenceStatement {
        self.change(token, &format!(", {set}"), condition)
    }

    fn change(&self, token: Token, set: &str, condition: &str) -> FenceStatement {
        let Self { table, column, dialect } = self;
        let text = match dialect {
            Dialect::Postgres => {
                format!(
                    "UPDATE {table} SET {column} = $1{set} WHERE COALESCE({column}, 0) <= $1 AND ({condition})"
                )
            }
            Dialect::Sqlite => {
                format!(
                    "UPDATE {table} SET {column} = ?1{set} WHERE COALESCE({column}, 0) <= ?1 AND ({condition})"
                )
            }
            // A parameter has no number there, so it can occur only once.
            Dialect::Mysql => format!(
                "UPDATE {table} JOIN (SELECT CAST(? AS SIGNED) AS leasehold_token) AS leasehold_shown \
                 SET {column} = leasehold_token{set} WHERE COALESCE({column}, 0) <= leasehold_token AND ({condition})"
            ),
        };
        FenceStatement { text, token: bound(token) }
    }

    /// The statement that inserts a row, or changes the row with the same key if it was shown no larger token. `keys`
    /// are the columns of the unique key, `values` the other columns that the statement sets. Their parameters follow
    /// the token in this order. MySQL and MariaDB ignore `keys` and change the row that has the same value in *any*
    /// unique key of the table: use a table with one unique key there. The number of changed rows tells whether the row
    /// was written, except on MySQL and MariaDB: there read [`seen`](Self::seen) afterwards in the same transaction.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a name of a column that is not plain, and without a key.
    pub fn upsert(&self, token: Token, keys: &[&str], values: &[&str]) -> Result<FenceStatement, Error> {
        if keys.is_empty() || !keys.iter().chain(values).all(|name| is_plain(name)) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a fence in {:?} with the columns {keys:?} and {values:?}: there must be a key, and names may only have letters, digits and _",
                    self.table
                ),
            ));
        }
        let Self { table, column, dialect } = self;
        let columns: Vec<&str> = [column.as_str()].iter().chain(keys).chain(values).copied().collect();
        let numbers = (1..=columns.len()).map(|number| match dialect {
            Dialect::Postgres => format!("${number}"),
            Dialect::Sqlite => format!("?{number}"),
            Dialect::Mysql => "?".to_owned(),
        });
        let (names, numbers) = (columns.join(", "), numbers.collect::<Vec<_>>().join(", "));
        let insert = format!("INSERT INTO {table} ({names}) VALUES ({numbers})");
        let text = if *dialect == Dialect::Mysql {
            // The column of the fence is last, because the server assigns from left to right.
            let assigned = values.iter().copied().chain([column.as_str()]).map(|name| {
                format!("{name} = IF(COALESCE({table}.{column}, 0) <= VALUES({column}), VALUES({name}), {table}.{name})")
            });
            format!("{insert} ON DUPLICATE KEY UPDATE {}", assigned.collect::<Vec<_>>().join(", "))
        } else {
            let assigned = columns.iter().filter(|name| !keys.contains(name));
            let assigned: Vec<_> = assigned.map(|name| format!("{name} = excluded.{name}")).collect();
            let bare_table = table.rsplit('.').next().unwrap_or(table);
            format!(
                "{insert} ON CONFLICT ({}) DO UPDATE SET {} WHERE COALESCE({bare_table}.{column}, 0) <= excluded.{column}",
                keys.join(", "),
                assigned.join(", ")
            )
        };
        Ok(FenceStatement { text, token: bound(token) })
    }

    /// The query of the largest token that a row has seen, for [`judge`](Self::judge). Its parameters are those of the
    /// condition.
    #[must_use]
    pub fn seen(&self, condition: &str) -> String {
        format!("SELECT COALESCE({}, 0) FROM {} WHERE {condition}", self.column, self.table)
    }

    /// Tells why a statement with this token affected no rows, by the answer to [`seen`](Self::seen), which the caller
    /// executes in the same transaction: `None` if it returned no row.
    ///
    /// MySQL counts rows that changed. A row that was shown the same token before and whose other columns have the new
    /// values already is not counted, and [`Fenced::Passed`] says that it was not refused.
    #[must_use]
    pub fn judge(&self, token: Token, seen: Option<i64>) -> Fenced {
        match seen {
            None => Fenced::NoRow,
            Some(seen) if seen > bound(token) => Fenced::Overtaken { seen: seen.unsigned_abs() },
            Some(_) => Fenced::Passed,
        }
    }

    /// Checks the number of rows that a [`seal`](Self::seal), [`update`](Self::update) or [`upsert`](Self::upsert)
    /// statement affected, without the second query of [`judge`](Self::judge). MySQL counts rows that changed, unless
    /// the client asks for the number of rows found (`client_found_rows` or the like). Without that option use
    /// [`judge`](Self::judge) if the number is 0.
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

/// The token as a value of the database. No engine makes a token above the largest number there.
fn bound(token: Token) -> i64 {
    i64::try_from(token.number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use leasehold_core::Lineage;

    use super::*;

    const TOKEN: Token = Token { lineage: Lineage::new(1), number: 17 };

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
        let fence = Fence::new("stock", "fence").unwrap();
        for (keys, values) in [(&["a b"][..], &["c"][..]), (&["a"], &["c;"]), (&[], &["c"])] {
            assert!(fence.upsert(TOKEN, keys, values).unwrap_err().is_invalid(), "{keys:?} {values:?}");
        }
    }

    #[test]
    fn the_text_is_the_same_for_every_token() {
        let later = Token { number: 18, ..TOKEN };
        for dialect in [Dialect::Postgres, Dialect::Mysql, Dialect::Sqlite] {
            let fence = Fence::new("stock", "fence").unwrap().dialect(dialect);
            let texts = |token| {
                let upsert = fence.upsert(token, &["item"], &["pieces"]).unwrap();
                [fence.seal(token, "a"), fence.update(token, "b", "c"), upsert]
                    .map(|statement| statement.text)
            };
            assert_eq!(texts(TOKEN), texts(later));
            assert!(texts(TOKEN).iter().all(|text| !text.contains("17")), "{:?}", texts(TOKEN));
        }
    }
}

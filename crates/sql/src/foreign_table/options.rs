//! Which table of another program has the locks, as the URL says.

use leasehold_core::Error;

use super::store::Dialect;

/// The program whose table has the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// ShedLock (Java): the row stays after the release.
    Shedlock,
    /// Symfony's `PdoStore` and `DoctrineDbalStore` (PHP).
    Symfony,
    /// Laravel's `DatabaseLock` (PHP).
    Laravel,
    /// Liquibase (Java): one row, without a time.
    Liquibase,
    /// Programs that insert a row to lock and delete it to unlock, without a time and an owner.
    Insert,
}

/// The words of the URL option `layout`, for messages.
pub const LAYOUT_WORDS: &str = "shedlock, symfony, laravel, liquibase and insert";

impl Layout {
    /// The layout with this word in a URL.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "shedlock" => Self::Shedlock,
            "symfony" => Self::Symfony,
            "laravel" => Self::Laravel,
            "liquibase" => Self::Liquibase,
            "insert" => Self::Insert,
            _ => return None,
        })
    }

    /// The word in a URL.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Shedlock => "shedlock",
            Self::Symfony => "symfony",
            Self::Laravel => "laravel",
            Self::Liquibase => "liquibase",
            Self::Insert => "insert",
        }
    }

    /// Whether a row has a time after which it counts as free.
    pub(crate) const fn has_time(self) -> bool {
        !matches!(self, Self::Liquibase | Self::Insert)
    }

    /// Whether a row says who holds it.
    pub(crate) const fn has_owner(self) -> bool {
        !matches!(self, Self::Insert)
    }

    /// The table that the program uses unless it is configured otherwise. PostgreSQL folds the unquoted name of
    /// Liquibase's table to lower case.
    const fn default_table(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Shedlock, _) => "shedlock",
            (Self::Symfony, _) => "lock_keys",
            (Self::Laravel, _) => "cache_locks",
            (Self::Liquibase, Dialect::Mysql) => "DATABASECHANGELOGLOCK",
            (Self::Liquibase, Dialect::Postgres) => "databasechangeloglock",
            (Self::Insert, _) => "",
        }
    }
}

/// A table of another program, and how its rows store locks.
#[derive(Clone, Debug)]
pub struct ForeignTable {
    pub(crate) layout: Layout,
    table: Option<String>,
    pub(crate) column: Option<String>,
    pub(crate) create: bool,
    /// What Laravel puts in front of each name.
    pub(crate) prefix: String,
}

/// The longest name of a table or column: the limit of PostgreSQL, one less than that of MySQL.
const MAX_IDENTIFIER: usize = 63;

impl ForeignTable {
    /// The default table of a layout.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self { layout, table: None, column: None, create: false, prefix: String::new() }
    }

    /// The table, in place of the default one.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) unless it is a plain name: letters, digits, `_` and `$`.
    pub fn table(mut self, name: &str) -> Result<Self, Error> {
        self.table = Some(identifier("table", name)?);
        Ok(self)
    }

    /// The column with the name of the lock, for [`Layout::Insert`].
    ///
    /// # Errors
    /// As for [`table`](Self::table).
    pub fn column(mut self, name: &str) -> Result<Self, Error> {
        self.column = Some(identifier("column", name)?);
        Ok(self)
    }

    /// Creates the table if it does not exist.
    #[must_use]
    pub const fn create(mut self) -> Self {
        self.create = true;
        self
    }

    /// What stands in front of each name in the table, for [`Layout::Laravel`]: the setting `cache.prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The same, if the options fit together.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if an option is missing, or does not apply to the layout.
    pub fn checked(self) -> Result<Self, Error> {
        let is_insert = self.layout == Layout::Insert;
        let problem = if is_insert && (self.table.is_none() || self.column.is_none()) {
            "the URL option layout=insert needs table= and column=, the table and its column with the name of the lock"
        } else if !is_insert && self.column.is_some() {
            "the URL option column applies to layout=insert only: the other layouts know their columns"
        } else if is_insert && self.create {
            "the URL option create=yes does not apply to layout=insert: its table has no fixed form"
        } else if self.layout != Layout::Laravel && !self.prefix.is_empty() {
            "a prefix (the URL option prefix, or that of the program) applies to layout=laravel only: the other programs \
             store names as they are"
        } else {
            return Ok(self);
        };
        Err(Error::misconfigured(problem))
    }

    /// The name of the table in this dialect.
    pub(crate) fn table_name(&self, dialect: Dialect) -> &str {
        self.table.as_deref().unwrap_or_else(|| self.layout.default_table(dialect))
    }
}

/// Checks the name of a table or column. The error does not show the name: it may be the end of a password that
/// contains a `?`.
fn identifier(option: &str, name: &str) -> Result<String, Error> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    if name.is_empty() || name.len() > MAX_IDENTIFIER || !name.chars().all(is_plain) {
        return Err(Error::misconfigured(format!(
            "the URL option {option} is no plain name: up to {MAX_IDENTIFIER} letters, digits, _ and $ are allowed"
        )));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        let new = ForeignTable::new;
        assert!(new(Layout::Shedlock).create().checked().is_ok());
        assert!(new(Layout::Laravel).prefix("app_").checked().is_ok());
        let insert = new(Layout::Insert).table("method_lock").unwrap();
        assert!(insert.clone().column("method_name").unwrap().checked().is_ok());
        for (wrong, reason) in [
            (insert.clone(), "needs table= and column="),
            (insert.column("c").unwrap().create(), "create=yes does not apply"),
            (new(Layout::Symfony).column("c").unwrap(), "column applies to layout=insert only"),
            (new(Layout::Liquibase).prefix("x"), "applies to layout=laravel only"),
        ] {
            let error = wrong.checked().unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn names_of_tables_and_columns_are_plain() {
        for wrong in ["", "a b", "a;b", "a\"b", "a`b", "a.b", "ä", &"a".repeat(64)] {
            let error = ForeignTable::new(Layout::Shedlock).table(wrong).unwrap_err();
            assert!(
                error.is_misconfigured() && error.to_string().contains("no plain name"),
                "{wrong}: {error}"
            );
        }
        assert!(ForeignTable::new(Layout::Shedlock).table(&"a".repeat(63)).is_ok());
    }

    #[test]
    fn every_word_names_its_layout() {
        for word in LAYOUT_WORDS.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and") {
            assert_eq!(Layout::from_word(word).unwrap().word(), word);
        }
        assert_eq!(Layout::from_word("quartz"), None);
    }
}

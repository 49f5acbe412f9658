//! Which row of another program is the lock of a name.

use leasehold_core::{Error, Name};

use crate::dialect::{is_plain, is_plain_table};

/// The rows that are the locks of names: in this table, the row whose column has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTable {
    table: String,
    /// The column of the name, then columns with fixed values.
    column: String,
    fixed: Vec<(String, String)>,
    creates: bool,
}

impl RowTable {
    /// The rows of a table, which may begin with its schema, by a column that has the name of the lock.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) for a name that is not plain: ASCII letters, digits and `_`.
    pub fn new(table: &str, column: &str) -> Result<Self, Error> {
        if !(is_plain_table(table) && is_plain(column)) {
            return Err(Error::misconfigured(
                "the URL options table and column are names with letters, digits and _ only, as xxl_job_lock and lock_name",
            ));
        }
        Ok(Self { table: table.to_owned(), column: column.to_owned(), fixed: Vec::new(), creates: false })
    }

    /// Only rows whose `column` has this value, as one of several programs with the same table.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn and(mut self, column: &str, value: &str) -> Result<Self, Error> {
        if !is_plain(column) || value.contains('\0') {
            return Err(Error::misconfigured(
                "the URL option and is a column and its value, as in and=SCHED_NAME:myScheduler",
            ));
        }
        self.fixed.push((column.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Creates the row of a name that has none. The other columns get their defaults.
    #[must_use]
    pub fn create(mut self) -> Self {
        self.creates = true;
        self
    }

    pub(crate) const fn creates(&self) -> bool {
        self.creates
    }

    /// The schema of the table, if it is given, and its name.
    #[cfg(feature = "mysql")]
    pub(crate) fn schema_and_table(&self) -> (Option<&str>, &str) {
        self.table.split_once('.').map_or((None, &self.table), |(schema, table)| (Some(schema), table))
    }

    /// The name of the table between `quote`s.
    pub(crate) fn quoted(&self, quote: char) -> String {
        self.table.split('.').map(|part| format!("{quote}{part}{quote}")).collect::<Vec<_>>().join(".")
    }

    /// The columns between `quote`s, first that of the name, with the values for `name`.
    pub(crate) fn columns<'a>(&'a self, name: &'a Name, quote: char) -> Vec<(String, &'a str)> {
        let quoted = |column: &str| format!("{quote}{column}{quote}");
        let fixed = self.fixed.iter().map(|(column, value)| (quoted(column), value.as_str()));
        std::iter::once((quoted(&self.column), name.as_str())).chain(fixed).collect()
    }

    /// The row of a name, for messages.
    pub(crate) fn described(&self, name: &Name) -> String {
        let condition = |(column, value): (String, &str)| format!("{column}={value:?}");
        let conditions: Vec<_> = self.columns(name, '\0').into_iter().map(condition).collect();
        format!("{}: {}", self.table, conditions.join(", ").replace('\0', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_accepted_and_all_are_quoted() {
        for (table, column) in [("", "a"), ("a b", "c"), ("a\"b", "c"), ("a.b.c", "d"), ("a", "b;")] {
            assert!(RowTable::new(table, column).unwrap_err().is_misconfigured(), "{table} {column}");
        }
        assert!(RowTable::new("t", "c").unwrap().and("d=1", "x").unwrap_err().is_misconfigured());
        let rows = RowTable::new("q.LOCKS", "LOCK_NAME").unwrap().and("SCHED", "it's").unwrap();
        let name = Name::new("n").unwrap();
        assert_eq!(rows.quoted('"'), "\"q\".\"LOCKS\"");
        let columns = [("`LOCK_NAME`".to_owned(), "n"), ("`SCHED`".to_owned(), "it's")];
        assert_eq!(rows.columns(&name, '`'), columns);
        assert_eq!(rows.described(&name), "q.LOCKS: LOCK_NAME=\"n\", SCHED=\"it's\"");
    }
}

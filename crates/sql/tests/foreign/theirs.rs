//! The statements of the other programs, as their documents and sources have them, for the server's own client program.
//! In them `:name`, `:owner` and `:seconds` stand for values.

use leasehold_sql::Layout;

use super::{Site, name};

/// The statements for one kind of server. Each list has one text for each layout, in the order of
/// [`LAYOUTS`](super::LAYOUTS).
pub(crate) struct Dialect {
    pub(crate) tables: [&'static str; 5],
    /// Creates the table as its program does.
    pub(crate) create: [&'static str; 5],
    /// ShedLock's table with times in whole seconds.
    pub(crate) coarse: &'static str,
    /// The tables as in `create`, with room for the names of the conformance suite.
    pub(crate) wide: [&'static str; 5],
    /// Tries to lock; the last row that it prints is 1 if it was granted.
    pub(crate) take: [&'static str; 5],
    pub(crate) free: [&'static str; 5],
    /// How ShedLock unlocks without `usingDbTime()`: whoever holds.
    pub(crate) free_by_name: &'static str,
    /// All rows that hold a name.
    pub(crate) held: [&'static str; 5],
    /// Liquibase's row, not locked.
    pub(crate) unlocked_row: &'static str,
    /// The time of the database, in seconds.
    pub(crate) now: &'static str,
    /// Makes the row of Liquibase a year older.
    pub(crate) last_year: &'static str,
}

fn index(layout: Layout) -> usize {
    super::LAYOUTS.iter().position(|known| *known == layout).unwrap()
}

impl Dialect {
    pub(crate) fn table(&self, layout: Layout) -> &'static str {
        self.tables[index(layout)]
    }

    pub(crate) fn plain_table(&self, layout: Layout) -> &'static str {
        self.create[index(layout)]
    }

    pub(crate) fn wide_table(&self, layout: Layout) -> &'static str {
        self.wide[index(layout)]
    }

    pub(crate) fn held_rows(&self, layout: Layout) -> &'static str {
        self.held[index(layout)]
    }
}

/// Another program with an owner text of its own.
pub(crate) struct Theirs<'a, S> {
    pub(crate) site: &'a S,
    pub(crate) layout: Layout,
    pub(crate) owner: &'static str,
}

impl<S: Site> Theirs<'_, S> {
    /// Tries to lock for this time; returns whether it was granted.
    pub(crate) fn take(&self, seconds: u32) -> bool {
        let granted = self.site.query(&self.filled(self.site.sql().take[index(self.layout)], seconds));
        granted.last().is_some_and(|row| row == "1")
    }

    /// Unlocks.
    pub(crate) fn free(&self) {
        self.site.query(&self.filled(self.site.sql().free[index(self.layout)], 0));
    }

    /// Unlocks as a program that does not check who holds, where there is such a program.
    pub(crate) fn free_by_name(&self) {
        if self.layout == Layout::Shedlock {
            self.site.query(&self.filled(self.site.sql().free_by_name, 0));
        } else {
            self.free();
        }
    }

    fn filled(&self, text: &str, seconds: u32) -> String {
        let key = if self.layout == Layout::Laravel {
            format!("app_{}", name(self.layout))
        } else {
            name(self.layout).into()
        };
        text.replace(":name", &format!("'{key}'"))
            .replace(":owner", &format!("'{}'", self.owner))
            .replace(":seconds", &seconds.to_string())
    }
}

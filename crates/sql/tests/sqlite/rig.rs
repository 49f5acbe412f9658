//! A file and its clients.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use leasehold_core::Env;
use leasehold_sql::{SqlEngine, sqlite::engine};
use rusqlite::Connection;

pub(crate) use crate::until::PATIENCE;

pub(crate) struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir().join("locks.db")
    }

    pub(crate) fn engine(&self) -> Arc<SqlEngine> {
        Arc::new(engine(&self.path(), &Env::system()).unwrap())
    }

    /// A connection of another program.
    pub(crate) fn other(&self) -> Connection {
        let other = Connection::open(self.path()).unwrap();
        other.busy_timeout(Duration::from_secs(10)).unwrap();
        other
    }

    pub(crate) fn execute(&self, text: &str) {
        self.other().execute_batch(text).unwrap();
    }

    /// The rows of the result, each with its columns joined by spaces.
    pub(crate) fn query(&self, text: &str) -> Vec<String> {
        let other = self.other();
        let mut statement = other.prepare(text).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let values = (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at));
            values.map(|value| value.map(|value| format!("{value:?}"))).collect::<Result<Vec<_>, _>>()
        };
        statement.query_map([], row).unwrap().map(|row| row.unwrap().join(" ")).collect()
    }

    /// All rows that carry information.
    pub(crate) fn remaining_rows(&self) -> Vec<String> {
        self.query(
            "SELECT name, stand FROM leasehold_claim UNION ALL \
             SELECT name, -1 FROM leasehold_lock WHERE holder IS NOT NULL OR claims <> 0 UNION ALL \
             SELECT name, -2 FROM leasehold_memo",
        )
    }
}

//! The SQLite engine under faults: client processes that are stopped and killed, and another program that writes to the
//! same database file.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use leasehold_core::Locks;
use leasehold_testkit::history::Event;
use rusqlite::Connection;

use crate::{
    Failure,
    workers::Workers,
    world::{Fault, Promise, Setting, World},
};

/// How many client processes a round has.
const CLIENTS: usize = 4;
/// How long the other program waits until it can write.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file and its clients.
pub struct Sqlite {
    /// The directory of the file. It is on a disk, as the databases of users are.
    dir: tempfile::TempDir,
    workers: Workers,
    admin: leasehold::Locks,
    /// The connection of the other program, as long as that program has an open transaction.
    other: Option<Connection>,
}

impl Sqlite {
    /// Starts the clients.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(setting: &Setting) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let url = format!("sqlite://{}", dir.path().join("locks.db").display());
        let admin = leasehold::Locks::connect(&url)?;
        let workers = Workers::start(setting, "client", vec![url; CLIENTS])?;
        Ok(Self { dir, workers, admin, other: None })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("locks.db")
    }

    /// Opens the database as the other program.
    fn open(&self) -> Option<Connection> {
        let other = Connection::open(self.path()).ok()?;
        other.busy_timeout(PATIENCE).ok()?;
        Some(other)
    }

    /// Begins a transaction that writes to another table, and does not commit it.
    fn write(&mut self) {
        let begin = "CREATE TABLE IF NOT EXISTS others (x); BEGIN IMMEDIATE; INSERT INTO others VALUES (1)";
        self.other = self.open().filter(|other| other.execute_batch(begin).is_ok());
    }

    /// Commits the transaction of the other program.
    fn commit(&mut self) {
        if let Some(other) = self.other.take() {
            // It does not matter whether the other program succeeds.
            let _ = other.execute_batch("COMMIT");
        }
    }

    /// Copies the whole write-ahead log into the database file and empties the log, as a backup or a tool may do.
    fn checkpoint(&self) {
        if let Some(other) = self.open() {
            let _ = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
    }
}

impl World for Sqlite {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn client_faults(&self) -> &'static [Fault<Self>] {
        &[
            Fault {
                name: "stop",
                lasts: 30..1500,
                begin: |w, client| w.workers.stop(client),
                end: |w, client| w.workers.resume(client),
            },
            Fault {
                name: "kill",
                lasts: 1..200,
                begin: |w, client| w.workers.kill(client),
                end: |w, client| w.workers.replace(client),
            },
        ]
    }

    fn server_faults(&self) -> &'static [Fault<Self>] {
        &[
            Fault { name: "other writer", lasts: 5..400, begin: |w, _| w.write(), end: |w, _| w.commit() },
            Fault { name: "checkpoint", lasts: 1..10, begin: |w, _| w.checkpoint(), end: |_, _| {} },
        ]
    }

    fn admin(&self) -> Locks {
        self.admin.core().clone()
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        self.workers.join()
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        // Finds rows that must not remain. Rows of killed clients remain at rest, but must expire within a limit.
        let left = || -> rusqlite::Result<Vec<String>> {
            let uptime = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
                .map_err(|_| rusqlite::Error::InvalidQuery)?;
            let limit = uptime.tv_sec() * 1_000_000 + 70_000_000;
            let file = Connection::open(self.path())?;
            let mut rows = file.prepare(
                "SELECT 'claim ' || name FROM leasehold_claim WHERE max(expires, place_expires) > ?1
                 UNION ALL SELECT 'hold ' || name FROM leasehold_lock WHERE holder IS NOT NULL AND expires > ?1",
            )?;
            rows.query_map([limit], |row| row.get(0))?.collect()
        };
        left().unwrap_or_else(|error| vec![error.to_string()]).into_iter().map(|left| (left, 1)).collect()
    }

    fn promise(&self) -> Promise {
        Promise::Exclusion
    }
}

//! An open database.

use std::{os::unix::ffi::OsStrExt, path::Path, time::Duration};

use leasehold_core::{Clock, Fault, LONGEST_REPLY, Lineage};
use rusqlite::{Connection, OpenFlags, config::DbConfig, limits::Limit};

use super::{
    SCHEMA,
    busy_retry::retry_while_busy,
    error::before_commit,
    location::{FilePaths, Identity, Right, check_location, check_location_for_look},
    tables,
    worker::Access,
};
use crate::database::Failed;

/// How many statements stay prepared: more than leasehold has.
const MAX_PREPARED: usize = 40;
/// How long one attempt to open a database may wait for other processes that are creating it.
const OPEN_LIMIT: Duration = Duration::from_secs(2);

/// An open database, with its tables.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) lineage: Lineage,
    paths: FilePaths,
    /// The files to which the names led at the opening.
    identity: Identity,
    /// The right with which the database was opened.
    right: Right,
    /// Whether it had our tables and no write-ahead log at the opening: another program took the log off.
    pub(super) lacked_log: bool,
}

impl Opened {
    /// Opens the database at a path. If the file or the tables do not exist, a writer creates them, and a reader gets
    /// empty tables in memory.
    pub(super) fn open(path: &Path, clock: &dyn Clock, access: Access) -> Result<Self, Failed> {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        if access == Access::Read && !is_there(path) && path.parent().is_some_and(is_there) {
            return Self::empty_tables(path);
        }
        let right = if access == Access::Read {
            check_location_for_look(path)
        } else {
            check_location(path).map(|()| Right::Write)
        };
        let opened = right.and_then(|right| {
            retry_while_busy(clock, OPEN_LIMIT, || match right {
                Right::Write => Self::open_now(path, clock, access),
                Right::Read => Self::open_to_look(path),
            })
        });
        opened.map_err(|failed| {
            Failed::new(failed.fault, format!("cannot use {}: {}", path.display(), failed.message))
        })
    }

    /// Makes one attempt to open the database, with the right to write.
    fn open_now(path: &Path, clock: &dyn Clock, access: Access) -> Result<Self, Failed> {
        // Not SQLITE_OPEN_URI: a path is taken literally, whatever its characters.
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, access == Access::Write);
        let connection = Connection::open_with_flags(path, flags).map_err(before_commit)?;
        set_up(&connection)?;
        // Checks the tables before anything is changed.
        let found_tables = tables::find_tables(&connection)?;
        if found_tables.is_none() && access == Access::Read {
            return Self::empty_tables(path);
        }
        let found_mode: String =
            connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(before_commit)?;
        let mode: String = connection
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .map_err(explain_not_sqlite)?;
        if mode != "wal" {
            return Err(Failed::new(
                Fault::Misconfigured,
                format!("it must have a write-ahead log, but SQLite keeps it in journal mode {mode:?}"),
            ));
        }
        // A granted lock is on the disk: no crash of the machine forgets it while its holder lives elsewhere.
        connection.execute_batch("PRAGMA synchronous = FULL").map_err(before_commit)?;
        let lineage = tables::prepare(&connection, clock)?;
        let real_path = connection.path().map_or(path, Path::new);
        let paths = FilePaths::new(path, real_path);
        let identity = paths.identity();
        let lacked_log = found_tables.is_some() && found_mode != "wal";
        Ok(Self { connection, lineage, paths, identity, right: Right::Write, lacked_log })
    }

    /// Opens the database for a user who is only allowed to read. No file is created beside the database. If there is
    /// no log, no process uses the database, and the file has all data. If a process starts to use the database during
    /// the look, a log appears: then the identity of the files has changed at the end of the look, and the look fails.
    fn open_to_look(path: &Path) -> Result<Self, Failed> {
        let real_path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let paths = FilePaths::new(path, &real_path);
        let identity = paths.identity();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let connection = if identity.has_log() {
            Connection::open_with_flags(path, flags)
        } else {
            Connection::open_with_flags(immutable_uri(&real_path), flags | OpenFlags::SQLITE_OPEN_URI)
        };
        let connection = connection.map_err(before_commit)?;
        set_up(&connection)?;
        match tables::of_this_boot(&connection)? {
            Some(lineage) => {
                Ok(Self { connection, lineage, paths, identity, right: Right::Read, lacked_log: false })
            }
            None => Self::empty_tables(path),
        }
    }

    /// Empty tables, in place of tables that do not exist yet.
    fn empty_tables(path: &Path) -> Result<Self, Failed> {
        let connection = Connection::open_in_memory().map_err(before_commit)?;
        connection.execute_batch(SCHEMA).map_err(before_commit)?;
        connection.execute_batch("UPDATE leasehold_meta SET lineage = '0'").map_err(before_commit)?;
        let paths = FilePaths::new(path, path);
        let identity = paths.identity();
        let lineage = Lineage::new(0);
        Ok(Self { connection, lineage, paths, identity, right: Right::Read, lacked_log: false })
    }

    /// Whether these are the tables of the file.
    pub(super) fn has_tables(&self) -> bool {
        self.lineage != Lineage::new(0)
    }

    /// Whether the database can stay open for more than one look.
    pub(super) fn may_stay_open(&self) -> bool {
        self.has_tables() && self.right == Right::Write
    }

    /// Begins a transaction that reads or writes. After an error no transaction is open.
    pub(super) fn begin(&self, access: Access) -> Result<(), Failed> {
        let begin = if access == Access::Read { "BEGIN" } else { "BEGIN IMMEDIATE" };
        let begun = self.connection.prepare_cached(begin).and_then(|mut begin| begin.execute([]));
        // The first query of a reader decides which state it sees.
        let checked =
            begun.map_err(before_commit).and_then(|_| tables::check_same(&self.connection, self.lineage));
        if checked.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        checked
    }

    /// Whether the path still leads to this file and its log: a process that opens it now finds the same locks. Empty
    /// tables in memory have no file: they tell what was at the path when they were opened, also if another process
    /// creates the file now.
    pub(super) fn is_at_path(&self) -> bool {
        !self.has_tables() || self.paths.identity() == self.identity
    }
}

/// Sets the limits and the protections of a new connection.
fn set_up(connection: &Connection) -> Result<(), Failed> {
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_REPLY as i32).map_err(before_commit)?;
    // SQLite's own busy timeout makes ever longer pauses, in which other processes get the file first: see
    // `retry_while_busy`.
    connection.busy_timeout(Duration::ZERO).map_err(before_commit)?;
    trust_nothing(connection).map_err(before_commit)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(explain_not_sqlite)
}

/// The URI that tells SQLite that no process changes the file (<https://sqlite.org/uri.html>).
fn immutable_uri(path: &Path) -> String {
    let byte = |byte: &u8| match byte {
        b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    format!("file:{}?immutable=1", path.as_os_str().as_bytes().iter().map(byte).collect::<String>())
}

/// Forbids the execution of code in the file, even of code that is written after our check.
fn trust_nothing(connection: &Connection) -> Result<(), rusqlite::Error> {
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, value)?;
    }
    Ok(())
}

/// The error for a file that is possibly no SQLite database.
fn explain_not_sqlite(error: rusqlite::Error) -> Failed {
    let failed = before_commit(error);
    match failed.fault {
        Fault::Misconfigured => Failed::new(
            failed.fault,
            format!(
                "{}: give the path of an SQLite database, or of a file that does not exist yet",
                failed.message
            ),
        ),
        _ => failed,
    }
}

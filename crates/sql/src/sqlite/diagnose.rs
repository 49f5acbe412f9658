//! The diagnosis of a database file: its place, the right of this user, its journal, and its tables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use leasehold_core::{Diagnostic, LimitIds, PlaceIds, Severity, diagnose_limits, diagnose_place};

use super::{
    location::{Right, check_location, check_location_for_look},
    opened::Opened,
};
use crate::database::Failed;

/// The ids of the diagnostics about the file system.
const PLACE: PlaceIds = PlaceIds {
    file_system_id: "sqlite-fs",
    mount_id: "sqlite-mount",
    space_id: "sqlite-space",
    without_space: "no lock is granted or renewed",
};
/// The ids of the diagnostics about limits.
const LIMITS: LimitIds = LimitIds { open_files_id: "sqlite-open-files", inotify_id: "sqlite-inotify" };
/// The size of a write-ahead log from which on there is a warning, in bytes. SQLite starts a log again from its
/// beginning at about 4 MiB, unless a transaction keeps it from that.
const LONG_LOG: u64 = 64 * 1024 * 1024;
/// The first version of SQLite without the error that can damage a database when its log is started again while another
/// connection makes a checkpoint (<https://sqlite.org/wal.html>).
const FIRST_SOUND_VERSION: (i32, &str) = (3_051_003, "3.51.3");

/// What is known of the tables in an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// There are none of ours yet.
    Missing,
    /// They are ours.
    Ours,
    /// They are ours, and the write-ahead log was off when this client opened the database.
    WithoutLog,
}

impl Tables {
    pub(super) fn of(file: &Opened) -> Self {
        match (file.has_tables(), file.lacked_log) {
            (false, _) => Self::Missing,
            (true, false) => Self::Ours,
            (true, true) => Self::WithoutLog,
        }
    }
}

/// What is seen without opening the database.
pub(super) fn of_file(path: &Path) -> Vec<Diagnostic> {
    let version = (rusqlite::version_number(), rusqlite::version());
    let mut all = vec![of_right(path), of_version(version.0, version.1)];
    all.extend(diagnose_place(path, &PLACE));
    all.extend(diagnose_limits(path.exists().then_some(path), &LIMITS));
    all
}

/// What this user may do with the file.
fn of_right(path: &Path) -> Diagnostic {
    let shown = path.display();
    match check_location(path) {
        Ok(()) if path.exists() => Diagnostic::good("sqlite-right", format!("this user may write {shown}")),
        Ok(()) => Diagnostic::good(
            "sqlite-right",
            format!("{shown} does not exist yet, and this user may create it: the first lock does"),
        ),
        Err(failed) => {
            let advice = match check_location_for_look(path) {
                Ok(Right::Read) => {
                    "locks can be shown only: give this user the right to write the file and its directory"
                }
                _ => {
                    "give this user the right to write the file and its directory, or another file in the URL"
                }
            };
            Diagnostic::new("sqlite-right", Severity::Broken, failed.message, advice)
        }
    }
}

/// Whether this version of SQLite has a known error.
fn of_version(number: i32, shown: &str) -> Diagnostic {
    let (first_sound, first_shown) = FIRST_SOUND_VERSION;
    if number >= first_sound {
        return Diagnostic::good("sqlite-version", format!("this program has SQLite {shown}"));
    }
    Diagnostic::new(
        "sqlite-version",
        Severity::Warning,
        format!(
            "this program has SQLite {shown}: in rare cases two processes that write at once damage the file"
        ),
        format!(
            "build it with SQLite {first_shown} or newer; check also the other programs that write the file"
        ),
    )
}

/// What is known after the database was opened: whether it has our tables, or why it cannot be used.
pub(super) fn of_tables(path: &Path, tables: Result<Tables, Failed>) -> Vec<Diagnostic> {
    let shown = path.display();
    let tables = match tables {
        Ok(tables) => tables,
        Err(failed) => {
            let advice = "mend what the message names, or give another file in the URL";
            return vec![Diagnostic::new("sqlite-tables", Severity::Broken, failed.message, advice)];
        }
    };
    if tables == Tables::Missing {
        let found = format!(
            "{shown} has no tables of leasehold yet: the first lock creates them, and a write-ahead log"
        );
        return vec![Diagnostic::good("sqlite-tables", found)];
    }
    let found = format!("{shown} has the tables of this version of leasehold");
    let journal = if tables == Tables::WithoutLog {
        Diagnostic::new(
            "sqlite-journal",
            Severity::Warning,
            format!(
                "another program took the write-ahead log off {shown}; leasehold has set it again, and waits for that program each time"
            ),
            "remove journal_mode from the other program, or give locks a file of their own",
        )
    } else {
        of_log(path, fs::metadata(log_of(path)).map_or(0, |log| log.len()))
    };
    vec![Diagnostic::good("sqlite-tables", found), journal]
}

/// Whether the log has grown.
fn of_log(path: &Path, bytes: u64) -> Diagnostic {
    let found = format!("the write-ahead log of {} has {} KiB", path.display(), bytes / 1024);
    if bytes < LONG_LOG {
        return Diagnostic::good("sqlite-journal", found);
    }
    Diagnostic::new(
        "sqlite-journal",
        Severity::Warning,
        format!(
            "{found}: a long transaction of another program kept it from being started again, and slows every lock"
        ),
        "end that transaction (`fuser` names the programs), then run PRAGMA wal_checkpoint(TRUNCATE)",
    )
}

/// The write-ahead log of a database. SQLite derives its name from the path without symbolic links.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    log.push("-wal");
    log.into()
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Env, Fault};
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::worker::Access;

    #[test]
    fn a_log_that_another_program_took_off_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let found = |access| {
            let file = Opened::open(&path, &*Env::system().clock, access).unwrap();
            Tables::of(&file)
        };
        assert_eq!(found(Access::Read), Tables::Missing);
        assert_eq!(found(Access::Write), Tables::Ours, "it is new");
        let connection = Connection::open(&path).unwrap();
        connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).unwrap();
        drop(connection);
        assert_eq!(found(Access::Read), Tables::WithoutLog);
        assert_eq!(found(Access::Read), Tables::Ours, "it was set again");
    }

    #[test]
    fn tables_are_judged() {
        let judged = |tables| {
            let all = of_tables(Path::new("/none/a.db"), tables);
            all.iter().map(|found| (found.id, found.severity)).collect::<Vec<_>>()
        };
        let good = ("sqlite-tables", Severity::Good);
        assert_eq!(judged(Ok(Tables::Missing)), [good]);
        assert_eq!(judged(Ok(Tables::Ours)), [good, ("sqlite-journal", Severity::Good)]);
        assert_eq!(judged(Ok(Tables::WithoutLog)), [good, ("sqlite-journal", Severity::Warning)]);
        let failed = Failed::new(Fault::Misconfigured, "its tables have version 9");
        assert_eq!(judged(Err(failed)), [("sqlite-tables", Severity::Broken)]);
    }

    #[test]
    fn a_long_log_is_a_warning() {
        assert_eq!(of_log(Path::new("/a.db"), LONG_LOG - 1).severity, Severity::Good);
        assert_eq!(of_log(Path::new("/a.db"), LONG_LOG).severity, Severity::Warning);
    }

    #[test]
    fn a_version_with_a_known_error_is_a_warning() {
        assert_eq!(of_version(3_051_002, "3.51.2").severity, Severity::Warning);
        assert_eq!(of_version(3_051_003, "3.51.3").severity, Severity::Good);
    }
}

//! The directories of servers: create, copy, remove.

use std::{env, fs, path::Path, process::Command};

use tempfile::TempDir;

/// The environment variable that names the directory for the data of servers, in place of the system's temporary
/// directory. `./test` sets it to a directory in memory that has enough room, because a disk that other programs use
/// can delay a server for seconds, which would say nothing about leasehold.
const DATA_VARIABLE: &str = "LEASEHOLD_TEST_DATA";

/// A directory for one server. It is removed when it is dropped.
///
/// # Panics
/// If the directory cannot be created.
pub(super) fn scratch() -> TempDir {
    let parent = env::var_os(DATA_VARIABLE).map_or_else(env::temp_dir, Into::into);
    TempDir::new_in(&parent)
        .unwrap_or_else(|error| panic!("no directory can be made in {}: {error}", parent.display()))
}

/// Removes a directory if it exists.
pub(super) fn remove(directory: &Path) {
    if directory.exists() {
        fs::remove_dir_all(directory).expect("a private directory can be removed");
    }
}

/// Copies a directory. Log files of servers consist mostly of holes (ranges that no one has written), which are copied
/// as holes.
pub(super) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--archive", "--sparse=always"]).args([from, to]).status();
    assert!(copied.expect("every system has cp").success(), "cannot copy {}", from.display());
}

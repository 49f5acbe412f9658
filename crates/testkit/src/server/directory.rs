//! What a server keeps in its directory, as a whole.

use std::{env, fs, path::Path, process::Command};

use tempfile::TempDir;

/// Names a directory in which servers keep their data, in place of the system's temporary one. `./test` names one in memory, for
/// a disk that other programs keep busy keeps a server from its clients for seconds, which says nothing about leasehold.
const DATA_VARIABLE: &str = "LEASEHOLD_TEST_DATA";

/// A directory for one server, removed when it is dropped.
///
/// # Panics
/// When there is no room.
pub(super) fn scratch() -> TempDir {
    let parent = env::var_os(DATA_VARIABLE).map_or_else(env::temp_dir, Into::into);
    TempDir::new_in(&parent)
        .unwrap_or_else(|error| panic!("no directory can be made in {}: {error}", parent.display()))
}

/// Removes a directory, if it is there.
pub(super) fn remove(directory: &Path) {
    if directory.exists() {
        fs::remove_dir_all(directory).expect("a private directory can be removed");
    }
}

/// Copies one. Logs of servers are mostly holes, that are not worth their room.
pub(super) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--archive", "--sparse=always"]).args([from, to]).status();
    assert!(copied.expect("every system has cp").success(), "cannot copy {}", from.display());
}

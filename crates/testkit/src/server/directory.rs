//! What a server keeps in its directory, as a whole.

use std::{fs, path::Path, process::Command};

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

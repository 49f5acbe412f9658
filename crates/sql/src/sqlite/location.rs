//! The location of a database: whether it can be shared by several processes there, and which files it consists of.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use leasehold_core::{Fault, network_file_system};
use nix::{
    errno::Errno,
    unistd::{AccessFlags, eaccess},
};

use crate::database::Failed;

/// Refuses a path at which a database cannot be shared. SQLite's own errors name neither cause nor cure.
pub(super) fn check_location(path: &Path) -> Result<(), Failed> {
    check_place(path, network_file_system)?;
    check_may_write(path)
}

/// What this user may do with a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

/// For inspection, which does not need the right to write: refuses a path at which a database cannot be shared or which
/// this user is not allowed to read. Otherwise returns the right that this user has.
pub(super) fn check_location_for_look(path: &Path) -> Result<Right, Failed> {
    check_place(path, network_file_system)?;
    if check_may_write(path).is_ok() {
        return Ok(Right::Write);
    }
    match eaccess(path, AccessFlags::R_OK) {
        Ok(()) => Ok(Right::Read),
        Err(_) => Err(Failed::new(Fault::Denied, format!("this user may not read {}", path.display()))),
    }
}

/// Refuses a path whose directory is missing or on a network file system, and a file that is not regular or has several
/// names. `network_kind` returns the kind of the network file system that a path is on; `None` if the path is on none.
fn check_place(
    path: &Path,
    network_kind: fn(&Path) -> io::Result<Option<&'static str>>,
) -> Result<(), Failed> {
    let dir = path.parent().ok_or_else(|| unusable_path("it is a directory, not a file".into()))?;
    match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(unusable_path(format!(
                "the directory {} does not exist: create it, or give another path",
                dir.display()
            )));
        }
        Err(error) => {
            return Err(Failed::new(fault_of(&error), format!("cannot examine {}: {error}", dir.display())));
        }
        Ok(_) => {}
    }
    let network_kind = network_kind(dir)
        .map_err(|error| unusable_path(format!("{} cannot be examined: {error}", dir.display())))?;
    if let Some(kind) = network_kind {
        return Err(unusable_path(format!(
            "{} is on {kind}, where SQLite does not exclude processes of other hosts: use a local file, or an engine that is \
             made for several hosts",
            dir.display()
        )));
    }
    match fs::metadata(path) {
        Ok(file) if !file.is_file() => Err(unusable_path(format!(
            "it is {}: give the path of an SQLite database, or of a file that does not exist yet",
            if file.is_dir() { "a directory" } else { "no regular file" }
        ))),
        // SQLite derives the name of the log from the name of the file, so a process that opens the file by another
        // name would use another log.
        Ok(file) if file.nlink() > 1 => Err(unusable_path(format!(
            "it has {} names (hard links), and processes that use different ones would not exclude each other: leave only one",
            file.nlink()
        ))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failed::new(fault_of(&error), format!("it cannot be examined: {error}")))
        }
        _ => Ok(()),
    }
}

/// Checks that this user may write the file, if it exists, and its directory.
fn check_may_write(path: &Path) -> Result<(), Failed> {
    if path.exists() {
        check_access(path, AccessFlags::W_OK | AccessFlags::R_OK)?;
    }
    path.parent().map_or(Ok(()), |dir| check_access(dir, AccessFlags::W_OK | AccessFlags::X_OK))
}

/// Refuses a path that this user cannot write: the file, or its directory, where SQLite creates two more files.
fn check_access(path: &Path, access: AccessFlags) -> Result<(), Failed> {
    match eaccess(path, access) {
        Ok(()) => Ok(()),
        Err(Errno::EROFS) => {
            Err(Failed::new(Fault::Refused, format!("{} is on a read-only file system", path.display())))
        }
        Err(_) => Err(Failed::new(
            Fault::Denied,
            format!(
                "this user may not write {}: locks are kept in the file and in two more beside it",
                path.display()
            ),
        )),
    }
}

/// The fault of a failed examination.
fn fault_of(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Fault::Denied,
        _ => Fault::Misconfigured,
    }
}

fn unusable_path(message: String) -> Failed {
    Failed::new(Fault::Misconfigured, message)
}

/// The identity (device and inode) of the files of a database: the file itself, its log, and its shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity([Option<(u64, u64)>; 3]);

/// The place of the log among the three files.
const LOG_INDEX: usize = 1;

/// The paths of these three files.
#[derive(Clone, Debug)]
pub(super) struct FilePaths([PathBuf; 3]);

impl Identity {
    /// Whether there is a log: a process uses the database, or ended while using it.
    pub(super) const fn has_log(&self) -> bool {
        self.0[LOG_INDEX].is_some()
    }
}

impl FilePaths {
    /// `real_path`: the path without symbolic links, from which SQLite derives the other names.
    pub(super) fn new(path: &Path, real_path: &Path) -> Self {
        let beside = |ending: &str| {
            let mut name = real_path.as_os_str().to_owned();
            name.push(ending);
            PathBuf::from(name)
        };
        Self([path.to_owned(), beside("-wal"), beside("-shm")])
    }

    /// The files that the names lead to now.
    pub(super) fn identity(&self) -> Identity {
        let file_identity = |path: &PathBuf| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        Identity(self.0.each_ref().map(file_identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        let failed = check_place(&path, |_| Ok(Some("NFS"))).expect_err("it is refused");
        assert_eq!(failed.fault, Fault::Misconfigured);
        assert!(failed.message.contains("is on NFS") && failed.message.contains("local file"), "{failed}");
        assert!(check_location(&path).is_ok() && !path.exists());
    }
}

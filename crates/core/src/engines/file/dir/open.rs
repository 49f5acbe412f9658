//! Opens the files of the lock directory safely: no symbolic links, special files or hard links.

use std::{ffi::CStr, fs::File, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{FileStat, Mode, fstat, fstatat},
};

use super::super::{
    dir::lock_dir::{LockDir, share},
    error::{classify_errno, foreign_file_error},
};
use crate::{EngineError, Fault};

/// The flags of `open(2)` for every file of the lock directory: such an open does not follow a symbolic link, does not
/// wait for the other end of a pipe, and does not take a controlling terminal.
pub(crate) const SAFE_FLAGS: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);
/// How often the open is tried anew because the file was removed between two steps. If that happens more often, another
/// program keeps removing the file.
const MAX_TRIES: usize = 16;

/// How to open a file or directory that is perhaps missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Creates it if it does not exist.
    CreateIfMissing,
    /// Opens it only if it exists.
    Existing,
    /// Opens it only if it exists, and only to read it: it may be on a read-only file system. The close of a file that
    /// was opened to write is an event for the views of the directory.
    ExistingToRead,
}

/// Opens the regular file `file` in the directory `dir`; refuses a file with more than one hard link. `shown_path` is
/// its path for messages.
pub(crate) fn open_file(
    lock_dir: &LockDir,
    dir: &OwnedFd,
    file: &CStr,
    access: Access,
    shown_path: impl Fn() -> String,
) -> Result<Option<(File, FileStat)>, EngineError> {
    for _ in 0..MAX_TRIES {
        let mode = if access == Access::ExistingToRead { OFlag::O_RDONLY } else { OFlag::O_RDWR };
        let fd = match open_existing(dir, file, mode) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) if access != Access::CreateIfMissing => return Ok(None),
            Err(Errno::ENOENT) => match create(lock_dir, dir, file) {
                Ok(fd) => fd,
                Err(Errno::EEXIST) => continue,
                Err(errno) => return Err(classify_errno("cannot create", &shown_path(), errno)),
            },
            Err(Errno::EACCES) if lock_dir.sharing_group.is_some() && is_being_created(dir, file) => {
                return Err(EngineError::new(
                    Fault::Retry,
                    format!("{} is just being created", shown_path()),
                ));
            }
            Err(errno) => return Err(classify_errno("cannot open", &shown_path(), errno)),
        };
        let stat = fstat(&fd).map_err(|errno| classify_errno("cannot look at", &shown_path(), errno))?;
        if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
            // A directory can be opened to read it.
            return Err(classify_errno("cannot open", &shown_path(), Errno::EISDIR));
        }
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(foreign_file_error(&shown_path(), "is not a regular file"));
        }
        match stat.st_nlink {
            // The file was removed since it was opened: tries again.
            0 => {}
            1 => return Ok(Some((File::from(fd), stat))),
            // Another user could have linked our file, or a file of a third user, under the name of a lock.
            links => return Err(foreign_file_error(&shown_path(), &format!("has {links} hard links"))),
        }
    }
    Err(EngineError::new(Fault::Retry, format!("{} is removed repeatedly by another process", shown_path())))
}

/// Opens without updates of the access time, which would cost a write per read. The kernel allows that flag only to the
/// owner of the file: other users open the file without it.
fn open_existing(dir: &OwnedFd, file: &CStr, mode: OFlag) -> Result<OwnedFd, Errno> {
    match openat(dir, file, mode | OFlag::O_NOATIME | SAFE_FLAGS, Mode::empty()) {
        Err(Errno::EPERM) => openat(dir, file, mode | SAFE_FLAGS, Mode::empty()),
        opened => opened,
    }
}

/// Creates a file, with the owner and the group of the lock directory.
pub(crate) fn create(lock_dir: &LockDir, dir: &OwnedFd, file: &CStr) -> Result<OwnedFd, Errno> {
    let (mode, flags) = (lock_dir.file_mode(), OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | SAFE_FLAGS);
    let fd = lock_dir.create_as_owner(|| openat(dir, file, flags, mode))?;
    if let Some(group) = lock_dir.sharing_group {
        share(&fd, group, mode)?;
    }
    Ok(fd)
}

/// Whether the file of a shared directory is still private: between its creation and the change of its mode.
fn is_being_created(dir: &OwnedFd, file: &CStr) -> bool {
    fstatat(dir, file, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_size == 0 && stat.st_mode & 0o777 == 0o600)
}

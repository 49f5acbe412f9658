//! An existing lock directory: its contents, and the ownership of the files in it.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    fcntl::openat,
    sys::stat::{FileStat, Mode, fchmod, fstat, mkdirat},
    unistd::{Gid, Uid, fchown, fsync, geteuid, setfsgid, setfsuid},
};

use super::super::{
    dir::open::Missing,
    dir::{DIRECTORY, check_permissions, local_file_system},
    error::classify_errno,
};
use crate::{EngineError, Fault};

/// The subdirectory with one state file per lock file.
pub(crate) const STATES: &str = ".state";
/// The subdirectory with the wake pipes of waiting processes.
pub(crate) const WAKE_PIPES: &str = ".bells";

/// An existing lock directory that passed every check.
#[derive(Debug)]
pub(crate) struct LockDir {
    /// The directory itself, which has the lock files.
    pub(crate) locks: OwnedFd,
    /// Its subdirectory `.state`, which has the state files.
    states: OnceLock<OwnedFd>,
    /// Its subdirectory `.bells`, which has the wake pipes.
    wake_pipes: OnceLock<OwnedFd>,
    /// The group that shares the directory, if it is shared.
    pub(crate) shared: Option<Gid>,
    /// The user and group under which root creates missing files here: otherwise the owner of the directory could not
    /// use files that root created.
    owner: Option<(Uid, Gid)>,
    /// The number of its file system type (`statfs`).
    pub(crate) fs: i64,
    /// The path, for messages.
    shown: String,
}

impl LockDir {
    /// Checks an opened directory.
    pub(crate) fn check(locks: OwnedFd, shown: String) -> Result<Self, EngineError> {
        let user = geteuid();
        let (stat, shared) = checked(&locks, &shown)?;
        let is_of_other_user = user.is_root() && stat.st_uid != 0 && shared.is_none();
        let owner = is_of_other_user.then(|| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        let fs = local_file_system(&locks, &shown)?;
        Ok(Self { locks, states: OnceLock::new(), wake_pipes: OnceLock::new(), shared, owner, fs, shown })
    }

    /// Its `.state`; `None` when it does not exist and `missing` does not ask to create it.
    pub(crate) fn states(&self, missing: Missing) -> Result<Option<&OwnedFd>, EngineError> {
        get_or_try_init(&self.states, || self.subdirectory(STATES, missing))
    }

    /// Its `.bells`; `None` when it does not exist and `missing` does not ask to create it.
    pub(crate) fn wake_pipes(&self, missing: Missing) -> Result<Option<&OwnedFd>, EngineError> {
        get_or_try_init(&self.wake_pipes, || self.subdirectory(WAKE_PIPES, missing))
    }

    /// The access mode of the files in it.
    pub(crate) fn file_mode(&self) -> Mode {
        Mode::from_bits_truncate(if self.shared.is_some() { 0o660 } else { 0o600 })
    }

    /// Runs `make`, which creates a file or directory here, under the user and group that are to own it.
    pub(crate) fn make<T>(&self, make: impl FnOnce() -> T) -> T {
        let _owner = self.owner.map(ActingUser::as_user);
        make()
    }

    fn subdirectory(&self, name: &str, missing: Missing) -> Result<Option<OwnedFd>, EngineError> {
        let path = format!("{}/{name}", self.shown);
        let mode = Mode::from_bits_truncate(if self.shared.is_some() { 0o2770 } else { 0o700 });
        let made = missing == Missing::Create
            && match self.make(|| mkdirat(&self.locks, name, mode)) {
                Ok(()) => true,
                Err(Errno::EEXIST) => false,
                Err(errno) => return Err(classify_errno("cannot create", &path, errno)),
            };
        let dir = match openat(&self.locks, name, DIRECTORY, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::ENOENT) if missing != Missing::Create => return Ok(None),
            Err(errno) => return Err(classify_errno("cannot open", &path, errno)),
        };
        if made {
            if let Some(group) = self.shared {
                share(&dir, group, mode).map_err(|errno| classify_errno("cannot share", &path, errno))?;
            }
            fsync(&self.locks).map_err(|errno| classify_errno("cannot sync", &self.shown, errno))?;
        }
        checked(&dir, &path)?;
        Ok(Some(dir))
    }
}

/// Refuses a directory in which another user could replace a lock file; returns the group that shares it.
fn checked(dir: &OwnedFd, shown: &str) -> Result<(FileStat, Option<Gid>), EngineError> {
    let stat =
        fstat(dir).map_err(|errno| classify_errno("cannot look at the lock directory", shown, errno))?;
    let shared = check_permissions(&stat, geteuid())
        .map_err(|reason| EngineError::new(Fault::Denied, format!("the lock directory {shown} {reason}")))?;
    Ok((stat, shared))
}

/// Returns the value of `cell`, made at the first success; `None` when it does not exist yet.
pub(crate) fn get_or_try_init<T>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<Option<T>, EngineError>,
) -> Result<Option<&T>, EngineError> {
    if cell.get().is_none()
        && let Some(made) = make()?
    {
        // Another thread may have been faster: both values are equally good.
        let _ = cell.set(made);
    }
    Ok(cell.get())
}

/// Until it is dropped, this thread accesses file systems as another user.
struct ActingUser((Uid, Gid));

impl ActingUser {
    fn as_user((user, group): (Uid, Gid)) -> Self {
        // The group first: after the change of the user, the thread may not change the group any more.
        let group = setfsgid(group);
        Self((setfsuid(user), group))
    }
}

impl Drop for ActingUser {
    fn drop(&mut self) {
        let (user, group) = self.0;
        setfsuid(user);
        setfsgid(group);
    }
}

/// Gives a new file or directory to the group of the shared directory, regardless of the umask and the primary group.
pub(crate) fn share(fd: &impl AsFd, group: Gid, mode: Mode) -> Result<(), Errno> {
    if fstat(fd)?.st_gid != group.as_raw() {
        fchown(fd, None, Some(group))?;
    }
    fchmod(fd, mode)
}

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
    dir::open::Access,
    dir::{DIRECTORY_FLAGS, check_permissions, local_file_system},
    error::classify_errno,
};
use crate::{EngineError, Fault};

/// The subdirectory with one state file per lock file.
pub(crate) const STATE_DIR: &str = ".state";
/// The subdirectory with the wake pipes of waiting processes; on disk it is called `.bells`.
pub(crate) const WAKE_PIPE_DIR: &str = ".bells";

/// An existing lock directory that passed every check.
#[derive(Debug)]
pub(crate) struct LockDir {
    /// The opened directory itself, which has the lock files.
    pub(crate) fd: OwnedFd,
    /// Its opened subdirectory `.state`, which has the state files.
    state_dir: OnceLock<OwnedFd>,
    /// Its opened subdirectory `.bells`, which has the wake pipes.
    wake_pipe_dir: OnceLock<OwnedFd>,
    /// The group that shares the directory, if it is shared.
    pub(crate) sharing_group: Option<Gid>,
    /// The user and group under which root creates missing files here: otherwise the owner of the directory could not
    /// use files that root created. `None` if this process creates files as itself.
    owner: Option<(Uid, Gid)>,
    /// The number of its file system type (`statfs`).
    pub(crate) fs_type: i64,
    /// The path of the directory, for messages.
    shown_path: String,
}

impl LockDir {
    /// Refuses an opened directory in which another user could replace a lock file, or whose file system is not local.
    pub(crate) fn check(fd: OwnedFd, shown_path: String) -> Result<Self, EngineError> {
        let user = geteuid();
        let (stat, sharing_group) = check_directory(&fd, &shown_path)?;
        let is_of_other_user = user.is_root() && stat.st_uid != 0 && sharing_group.is_none();
        let owner = is_of_other_user.then(|| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        let fs_type = local_file_system(&fd, &shown_path)?;
        Ok(Self {
            fd,
            state_dir: OnceLock::new(),
            wake_pipe_dir: OnceLock::new(),
            sharing_group,
            owner,
            fs_type,
            shown_path,
        })
    }

    /// Its subdirectory `.state`; `None` when it does not exist and `access` does not allow to create it.
    pub(crate) fn state_dir(&self, access: Access) -> Result<Option<&OwnedFd>, EngineError> {
        get_or_try_init(&self.state_dir, || self.open_subdirectory(STATE_DIR, access))
    }

    /// Its subdirectory `.bells`; `None` when it does not exist and `access` does not allow to create it.
    pub(crate) fn wake_pipe_dir(&self, access: Access) -> Result<Option<&OwnedFd>, EngineError> {
        get_or_try_init(&self.wake_pipe_dir, || self.open_subdirectory(WAKE_PIPE_DIR, access))
    }

    /// The permission bits of the files in it.
    pub(crate) fn file_mode(&self) -> Mode {
        Mode::from_bits_truncate(if self.sharing_group.is_some() { 0o660 } else { 0o600 })
    }

    /// Runs `create`, which creates a file or directory here, under the user and group that are to own it.
    pub(crate) fn create_as_owner<T>(&self, create: impl FnOnce() -> T) -> T {
        let _acting_user = self.owner.map(ActingUser::switch_to);
        create()
    }

    /// Opens a subdirectory; creates it first if `access` allows that.
    fn open_subdirectory(&self, name: &str, access: Access) -> Result<Option<OwnedFd>, EngineError> {
        let path = format!("{}/{name}", self.shown_path);
        let mode = Mode::from_bits_truncate(if self.sharing_group.is_some() { 0o2770 } else { 0o700 });
        let is_new = access == Access::CreateIfMissing
            && match self.create_as_owner(|| mkdirat(&self.fd, name, mode)) {
                Ok(()) => true,
                Err(Errno::EEXIST) => false,
                Err(errno) => return Err(classify_errno("cannot create", &path, errno)),
            };
        let dir = match openat(&self.fd, name, DIRECTORY_FLAGS, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::ENOENT) if access != Access::CreateIfMissing => return Ok(None),
            Err(errno) => return Err(classify_errno("cannot open", &path, errno)),
        };
        if is_new {
            if let Some(group) = self.sharing_group {
                share(&dir, group, mode).map_err(|errno| classify_errno("cannot share", &path, errno))?;
            }
            fsync(&self.fd).map_err(|errno| classify_errno("cannot sync", &self.shown_path, errno))?;
        }
        check_directory(&dir, &path)?;
        Ok(Some(dir))
    }
}

/// Refuses a directory in which another user could replace a lock file; returns the group that shares it.
fn check_directory(dir: &OwnedFd, shown_path: &str) -> Result<(FileStat, Option<Gid>), EngineError> {
    let stat =
        fstat(dir).map_err(|errno| classify_errno("cannot look at the lock directory", shown_path, errno))?;
    let sharing_group = check_permissions(&stat, geteuid()).map_err(|reason| {
        EngineError::new(Fault::Denied, format!("the lock directory {shown_path} {reason}"))
    })?;
    Ok((stat, sharing_group))
}

/// Returns the value of `cell`. As long as there is none, each call runs `make`, which may return `None`.
pub(crate) fn get_or_try_init<T>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<Option<T>, EngineError>,
) -> Result<Option<&T>, EngineError> {
    if cell.get().is_none()
        && let Some(value) = make()?
    {
        // Another thread may have set a value first: both values are equally good.
        let _ = cell.set(value);
    }
    Ok(cell.get())
}

/// Until it is dropped, this thread accesses file systems as another user. It has the user and group to return to.
struct ActingUser {
    previous_user: Uid,
    previous_group: Gid,
}

impl ActingUser {
    fn switch_to((user, group): (Uid, Gid)) -> Self {
        // The group first: once the user is changed, the thread has no permission to change the group any more.
        let previous_group = setfsgid(group);
        Self { previous_user: setfsuid(user), previous_group }
    }
}

impl Drop for ActingUser {
    fn drop(&mut self) {
        setfsuid(self.previous_user);
        setfsgid(self.previous_group);
    }
}

/// Gives a new file or directory to the group of the shared directory, regardless of the umask and the primary group.
pub(crate) fn share(fd: &impl AsFd, group: Gid, mode: Mode) -> Result<(), Errno> {
    if fstat(fd)?.st_gid != group.as_raw() {
        fchown(fd, None, Some(group))?;
    }
    fchmod(fd, mode)
}

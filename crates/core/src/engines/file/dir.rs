//! The lock directory: its path, the requirements that it must meet, and the reasons to refuse it.

pub(super) mod encode;
pub(super) mod idle;
pub(super) mod lock_dir;
pub(super) mod open;

use std::{
    ffi::CString,
    fs::DirBuilder,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::DirBuilderExt},
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::{
        stat::{FileStat, Mode, lstat},
        statfs::{fstatfs, statfs},
    },
    unistd::{Gid, Uid, User, geteuid},
};

use super::{
    dir::lock_dir::{LockDir, STATE_DIR, get_or_try_init},
    dir::open::Access,
    error::{classify, classify_errno},
};
use crate::{EngineError, Fault};

/// The default lock directory of root.
const ROOT_DIR: &str = "/var/lib/leasehold";
/// The default lock directory of every other user, in the home directory.
const USER_DIR: &str = ".local/state/leasehold";
/// The flags of `open(2)` that open a directory and refuse every other kind of file.
pub(super) const DIRECTORY_FLAGS: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A lock directory, which perhaps does not exist yet. The first claim creates what is missing; inspection creates
/// nothing.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    /// The opened directory; empty until the directory exists and was opened.
    lock_dir: OnceLock<LockDir>,
}

impl Dir {
    /// The directory at `path`, or the default one of this user. An existing directory is checked; a missing one is no
    /// error.
    pub(super) fn open(path: Option<PathBuf>) -> Result<Self, EngineError> {
        let path = match path {
            Some(path) => path,
            None => default_path()?,
        };
        if !path.is_absolute() {
            let shown_path = path.display();
            return Err(misconfigured(format!(
                "the lock directory {shown_path} is relative: give it from / on"
            )));
        }
        // Without a trailing slash, which would follow a symbolic link.
        let dir = Self { path: path.components().collect(), lock_dir: OnceLock::new() };
        dir.lock_dir(Access::Existing)?;
        Ok(dir)
    }

    /// The opened directory; `None` when it does not exist and `access` does not allow to create it.
    pub(super) fn lock_dir(&self, access: Access) -> Result<Option<&LockDir>, EngineError> {
        get_or_try_init(&self.lock_dir, || {
            let shown_path = self.path.display().to_string();
            refuse_non_directory(&self.path, &shown_path)?;
            if access == Access::CreateIfMissing {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.path)
                    .map_err(|error| classify("cannot create the lock directory", &shown_path, error))?;
            }
            match open(&self.path, DIRECTORY_FLAGS, Mode::empty()) {
                Ok(fd) => LockDir::check(fd, shown_path).map(Some),
                Err(Errno::ENOENT) if access != Access::CreateIfMissing => Ok(None),
                Err(errno) => Err(classify_errno("cannot open the lock directory", &shown_path, errno)),
            }
        })
    }

    /// The number of the file system type of this directory; if it is missing, of the file system in which it will be
    /// created.
    pub(super) fn file_system_type(&self) -> Option<i64> {
        let known_type =
            self.lock_dir(Access::ExistingToRead).ok().flatten().map(|lock_dir| lock_dir.fs_type);
        #[allow(clippy::unnecessary_cast, reason = "the type differs between targets")]
        let type_at = |path: &Path| statfs(path).ok().map(|stat| stat.filesystem_type().0 as i64);
        known_type.or_else(|| self.path.ancestors().find_map(type_at))
    }

    /// The full path of a lock file, for system calls.
    pub(super) fn lock_file_path(&self, file_name: &str) -> CString {
        let mut bytes = self.path.as_os_str().as_bytes().to_vec();
        bytes.push(b'/');
        bytes.extend_from_slice(file_name.as_bytes());
        CString::new(bytes).expect("an open path and an encoded name hold no NUL")
    }

    /// The path of a state file, for messages.
    pub(super) fn state_path(&self, file_name: &str) -> String {
        self.path.join(STATE_DIR).join(file_name).display().to_string()
    }
}

/// The lock directory of a user who has named none.
fn default_path() -> Result<PathBuf, EngineError> {
    let uid = geteuid();
    if uid.is_root() {
        return Ok(ROOT_DIR.into());
    }
    let user = User::from_uid(uid)
        .map_err(|errno| classify_errno("cannot look up the home of user", &uid.to_string(), errno))?
        .ok_or_else(|| {
            misconfigured(format!("user {uid} has no passwd entry: name a lock directory (file:///dir)"))
        })?;
    Ok(user.dir.join(USER_DIR))
}

/// Refuses a symbolic link and a file in the place of the directory.
fn refuse_non_directory(path: &Path, shown_path: &str) -> Result<(), EngineError> {
    match lstat(path) {
        Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFLNK => Err(EngineError::new(
            Fault::Denied,
            format!(
                "the lock directory {shown_path} is a symbolic link, which is never followed: name the directory itself"
            ),
        )),
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFDIR => {
            Err(misconfigured(format!("the lock directory {shown_path} is not a directory")))
        }
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(classify_errno("cannot open the lock directory", shown_path, errno)),
    }
}

/// The permission bits of a directory that all users, or its group, can write.
const WRITABLE_BY_ALL: libc::mode_t = 0o002;
const WRITABLE_BY_GROUP: libc::mode_t = 0o020;

/// Refuses a directory in which another user could replace a lock file; returns the group that shares it.
pub(super) fn check_permissions(stat: &FileStat, user: Uid) -> Result<Option<Gid>, String> {
    if stat.st_mode & WRITABLE_BY_ALL != 0 {
        return Err(
            "is writable by all users, and any of them could replace a lock file: chmod o-w it".into()
        );
    }
    let is_shared = stat.st_mode & WRITABLE_BY_GROUP != 0;
    if stat.st_uid != user.as_raw() && !user.is_root() && !is_shared {
        let owner = stat.st_uid;
        return Err(format!(
            "belongs to user {owner} and is not shared: use a directory of your own, or share it (chgrp GROUP, chmod 2770)"
        ));
    }
    Ok(is_shared.then(|| Gid::from_raw(stat.st_gid)))
}

/// File systems whose locks another host may not see, or that may lose them: NFS, SMB, CIFS, SMB2, 9P, FUSE, AFS,
/// kAFS, CEPH, GFS2, OCFS2, Lustre, GPFS, Coda, NCP, vboxsf, vmhgfs, BeeGFS, OrangeFS, PanFS.
const NOT_LOCAL: [(u32, &str); 20] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "CEPH"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
];

/// The number of the file system type of the lock directory; an error if its locks do not hold between hosts.
pub(super) fn local_file_system(dir: &OwnedFd, shown_path: &str) -> Result<i64, EngineError> {
    let stat = fstatfs(dir)
        .map_err(|errno| classify_errno("cannot look at the file system of", shown_path, errno))?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between targets")]
    let fs_type = stat.filesystem_type().0 as i64;
    match non_local_kind(fs_type) {
        None => Ok(fs_type),
        Some(kind) => Err(misconfigured(format!(
            "the lock directory {shown_path} is on {kind}, whose locks may not exclude other hosts: use a local directory, or an engine for several hosts"
        ))),
    }
}

/// The name of the file system of a directory, if its locks do not hold between hosts; else `None`.
///
/// # Errors
/// Any I/O error of `statfs`.
pub fn network_file_system(dir: &Path) -> std::io::Result<Option<&'static str>> {
    let stat = statfs(dir)?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between targets")]
    let fs_type = stat.filesystem_type().0 as i64;
    Ok(non_local_kind(fs_type))
}

/// The name of a file system type whose locks do not hold between hosts; `None` for every other type.
fn non_local_kind(fs_type: i64) -> Option<&'static str> {
    // Some targets extend the sign: only the low 32 bits are the number.
    NOT_LOCAL.iter().find(|(number, _)| *number == fs_type as u32).map(|(_, kind)| *kind)
}

fn misconfigured(message: String) -> EngineError {
    EngineError::new(Fault::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(mode: libc::mode_t, uid: u32) -> FileStat {
        let mut stat = lstat("/").unwrap();
        (stat.st_mode, stat.st_uid, stat.st_gid) = (libc::S_IFDIR | mode, uid, 77);
        stat
    }

    #[test]
    fn directories_are_checked_for_unsafe_permissions() {
        let (own, other, root) = (Uid::from_raw(1000), Uid::from_raw(1001), Uid::from_raw(0));
        assert_eq!(check_permissions(&stat(0o700, 1000), own), Ok(None));
        assert_eq!(check_permissions(&stat(0o2770, 1000), own), Ok(Some(Gid::from_raw(77))));
        assert_eq!(check_permissions(&stat(0o2770, 1000), other), Ok(Some(Gid::from_raw(77))));
        assert_eq!(check_permissions(&stat(0o755, 1000), root), Ok(None));
        assert!(check_permissions(&stat(0o755, 1000), other).unwrap_err().contains("user 1000"));
        for (mode, user) in [(0o777, own), (0o1777, own), (0o702, root)] {
            assert!(check_permissions(&stat(mode, 1000), user).unwrap_err().contains("all users"));
        }
    }

    #[test]
    fn network_file_systems_are_recognised_by_signed_magic_numbers() {
        assert_eq!(non_local_kind(0x6969), Some("NFS"));
        assert_eq!(non_local_kind(i64::from(0xFF53_4D42_u32 as i32)), Some("CIFS"));
        assert_eq!(non_local_kind(0xEF53), None, "ext4 is local");
    }
}

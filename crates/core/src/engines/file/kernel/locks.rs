//! The three kinds of kernel lock on a lock file.
//!
//! 1. The **flock** is the lock itself, visible to `flock(1)`: exclusive for an exclusive hold, shared for a shared
//!    hold and for permits.
//! 2. The **latch**, an open-file-description lock on one byte far beyond the end of the file, is held for
//!    microseconds while the table in the state file changes. No process ever waits for it in the kernel.
//! 3. A **mark** is an open-file-description lock on a byte that stands for one ticket or one token. It shows that the
//!    claim with that ticket, or the hold with that token, is alive: the kernel drops the mark with the last
//!    descriptor, however the process ends.
//!
//! All three belong to the open file, not to the process. So two claims of one process compete like claims of two
//! processes, and a child that has the descriptor keeps the locks. A child that is forked does not get the descriptor;
//! a child that is given a duplicate does.

use std::{
    ffi::CString,
    fs::{File, TryLockError},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    sys::stat::lstat,
};

use super::super::{
    dir::Dir,
    dir::encode,
    dir::open::{Access, open_file},
    error::{classify, classify_errno, foreign_file_error},
    kernel::{Flock, KernelLocks},
    table::layout::TICKET_OR_TOKEN_LIMIT,
};
use crate::{
    EngineError, Fault, Mode, Name,
    contract::process::{self, NotInherited},
};

/// The byte of the latch. Beyond every offset at which a file can have data, so that our locks never overlap those of
/// programs that lock real bytes.
const LATCH_BYTE: i64 = 1 << 62;
/// The first byte of the marks of claims: the mark of a claim is at this byte plus its ticket.
const FIRST_TICKET_MARK: i64 = LATCH_BYTE + (1 << 60);
/// The first byte of the marks of exclusive holds: the mark of a hold is at this byte plus its token.
const FIRST_HOLD_MARK: i64 = LATCH_BYTE + (1 << 61);
const _: () = assert!(TICKET_OR_TOKEN_LIMIT as i64 <= 1 << 60, "the three ranges do not overlap");
/// The length of a lock that extends to the end of the file, however far that is.
const TO_END_OF_FILE: i64 = 0;
/// How often one call tries to take the latch before core has to ask again later. There are enough tries to outlast a
/// few holders of the latch, each of which needs microseconds. There are so few that hundreds of claims that try do not
/// starve those holders.
pub(crate) const LATCH_TRIES: usize = 32;
/// How many times a try in shared mode or for permits tries to take the latch, and how many times it tries to take the
/// flock. So many tries take about a millisecond. They are worth that time, because such a claim may fit beside the
/// current holders, and core does not repeat the claim.
pub(crate) const LATCH_TRIES_TO_SHARE: usize = 1000;

/// A name, with the paths of its lock file and its state file.
#[derive(Clone, Debug)]
pub(crate) struct NamePaths {
    pub(crate) name: Name,
    /// The file name, the same in the lock directory and in its `.state`.
    pub(crate) file_name: CString,
    /// The full path of the lock file.
    pub(crate) lock_path: CString,
}

impl NamePaths {
    pub(crate) fn new(dir: &Dir, name: &Name) -> Self {
        let file = encode::file_name(name);
        let lock_path = dir.lock_file_path(&file);
        let file_name = CString::new(file).expect("an encoded name holds no NUL");
        Self { name: name.clone(), file_name, lock_path }
    }

    /// The path of the lock file, for messages.
    pub(crate) fn shown_path(&self) -> String {
        self.lock_path.to_string_lossy().into_owned()
    }
}

/// A mark, by what it shows to be alive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// The claim with this ticket.
    Ticket(u64),
    /// The exclusive hold with this first token.
    Hold(u64),
}

impl Mark {
    /// The byte that is locked for this mark.
    fn byte(self) -> i64 {
        match self {
            Self::Ticket(number) => FIRST_TICKET_MARK + number as i64,
            Self::Hold(number) => FIRST_HOLD_MARK + number as i64,
        }
    }
}

/// One open lock file. No two claims use the same open file at the same time.
#[derive(Debug)]
pub(crate) struct LockFile {
    /// Before `file`: ends before the file is closed.
    _not_inherited: NotInherited,
    file: File,
    device: libc::dev_t,
    inode: libc::ino_t,
    /// The number of forks of this process at the time of opening.
    forks: u32,
    /// Whether the open file has a state that lasts until it is closed: it was duplicated, or carries the mark of a
    /// ticket.
    has_lasting_state: AtomicBool,
}

impl LockFile {
    /// Opens the lock file of `paths`; `None` when it does not exist and `access` does not allow to create it.
    pub(crate) fn open(dir: &Dir, paths: &NamePaths, access: Access) -> Result<Option<Self>, EngineError> {
        let Some(lock_dir) = dir.lock_dir(access)? else { return Ok(None) };
        let opened = open_file(lock_dir, &lock_dir.fd, &paths.file_name, access, || paths.shown_path())?;
        Ok(opened.map(|(file, stat)| Self {
            _not_inherited: NotInherited::new(&file),
            file,
            device: stat.st_dev,
            inode: stat.st_ino,
            forks: process::forks(),
            has_lasting_state: AtomicBool::new(false),
        }))
    }

    /// The flocks on this file, as the kernel lists them.
    pub(crate) fn flocks(&self, dir: &Dir) -> Vec<Flock> {
        KernelLocks::read(dir.file_system_type()).flocks_on(self.device, self.inode)
    }

    /// Whether the path still leads to this very file. If not, other claims lock another file, and a lock on this one
    /// excludes nobody.
    pub(crate) fn is_at_path(&self, paths: &NamePaths) -> Result<bool, EngineError> {
        match lstat(paths.lock_path.as_c_str()) {
            Ok(stat) if stat.st_dev != self.device || stat.st_ino != self.inode => Ok(false),
            Ok(stat) if stat.st_nlink > 1 => {
                Err(foreign_file_error(&paths.shown_path(), "was given another hard link"))
            }
            Ok(_) => Ok(true),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
            Err(errno) => Err(classify_errno("cannot look at", &paths.shown_path(), errno)),
        }
    }

    /// The file itself, for watching it and for passing its descriptor to a child.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Duplicates the descriptor of this open file; the duplicate is closed on exec.
    pub(crate) fn duplicate(&self) -> std::io::Result<OwnedFd> {
        self.has_lasting_state.store(true, Ordering::Relaxed);
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Takes the flock for a hold of this mode if that is possible without waiting. The caller must not call this for
    /// an open file that has a flock already.
    pub(crate) fn try_flock(&self, mode: Mode) -> Result<bool, EngineError> {
        let locked = match mode {
            Mode::Exclusive => self.file.try_lock(),
            Mode::Shared | Mode::Permits { .. } => self.file.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(classify("cannot lock", "the lock file", error)),
        }
    }

    /// Releases the flock. The caller must do this before it closes the file, because a close notifies the watchers of
    /// the file before it frees the lock.
    pub(crate) fn unflock(&self) {
        // LOCK_UN on an open file fails only when the kernel is out of memory; then the close that follows frees the
        // lock.
        let _ = self.file.unlock();
    }

    /// Whether this open file, after nothing is locked on it any more, can be used as if newly opened: no other process
    /// can have inherited it, and it carries nothing that lasts until it is closed.
    pub(crate) fn is_ours_alone(&self) -> bool {
        self.forks == process::forks() && !self.has_lasting_state.load(Ordering::Relaxed)
    }

    /// Sets a mark. The mark of a ticket stays until the last descriptor of this open file is closed; the mark of a
    /// hold can be removed before.
    pub(crate) fn set_mark(&self, mark: Mark) -> Result<(), EngineError> {
        if matches!(mark, Mark::Ticket(_)) {
            self.has_lasting_state.store(true, Ordering::Relaxed);
        }
        match self.lock_byte(libc::F_WRLCK, mark.byte()) {
            Ok(()) => Ok(()),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(foreign_file_error(
                "the lock file",
                "has byte-range locks of a program that does not follow the rules of the lock table",
            )),
            Err(errno) => Err(classify_errno("cannot mark", "the lock file", errno)),
        }
    }

    /// Removes the mark of this open file's own hold; returns whether the mark is certainly removed.
    pub(crate) fn remove_hold_mark(&self, token: u64) -> bool {
        self.lock_byte(libc::F_UNLCK, Mark::Hold(token).byte()).is_ok()
    }

    /// Whether another open file has set this mark. A lock of another program on the whole file covers every mark,
    /// also marks that no claim has set; such a lock does not count.
    pub(crate) fn is_marked(&self, mark: Mark) -> Result<bool, EngineError> {
        let mut probe = byte_range(libc::F_WRLCK, mark.byte());
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut probe))
            .map_err(|errno| classify_errno("cannot probe", "the lock file", errno))?;
        Ok(i32::from(probe.l_type) != libc::F_UNLCK && probe.l_len != TO_END_OF_FILE)
    }

    /// Whether another program has locked the whole file by `fcntl(2)` or `lockf(3)`: such a lock covers the latch
    /// and all marks.
    pub(crate) fn is_locked_by_another_program(&self) -> Result<bool, EngineError> {
        let mut probe = byte_range(libc::F_WRLCK, LATCH_BYTE);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut probe))
            .map_err(|errno| classify_errno("cannot probe", "the lock file", errno))?;
        Ok(i32::from(probe.l_type) != libc::F_UNLCK && (probe.l_start, probe.l_len) != (LATCH_BYTE, 1))
    }

    /// Releases every lock, as the kernel does when the last descriptor is closed.
    #[cfg(test)]
    pub(crate) fn unlock_all(&self) {
        self.unflock();
        fcntl(
            &self.file,
            FcntlArg::F_OFD_SETLK(&libc::flock { l_len: 0, ..byte_range(libc::F_UNLCK, LATCH_BYTE) }),
        )
        .unwrap();
    }

    /// Takes the latch, or returns [`Fault::Retry`] when its holder does not release it (the holder is paused by a
    /// signal, or gets no CPU time).
    pub(crate) fn latch(&self) -> Result<Latch<'_>, EngineError> {
        self.latch_within(LATCH_TRIES)
    }

    /// Takes the latch as [`latch`](Self::latch) does, in at most `tries` tries.
    pub(crate) fn latch_within(&self, tries: usize) -> Result<Latch<'_>, EngineError> {
        for _ in 0..tries {
            if let Some(latch) = self.try_latch()? {
                return Ok(latch);
            }
            std::thread::yield_now();
        }
        Err(EngineError::new(
            Fault::Retry,
            "a process was stopped, or gets no CPU time, while it changed the table of waiters: see `show` and /proc/locks",
        ))
    }

    /// Takes the latch if it is free.
    pub(crate) fn try_latch(&self) -> Result<Option<Latch<'_>>, EngineError> {
        match self.lock_byte(libc::F_WRLCK, LATCH_BYTE) {
            Ok(()) => Ok(Some(Latch(self))),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(classify_errno("cannot latch", "the lock file", errno)),
        }
    }

    /// Locks or unlocks one byte, without waiting.
    fn lock_byte(&self, lock_type: i32, byte: i64) -> Result<(), Errno> {
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&byte_range(lock_type, byte))).map(drop)
    }
}

/// The latch, held until dropped.
#[derive(Debug)]
pub(crate) struct Latch<'a>(&'a LockFile);

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        // Unlocking one's own single byte splits no range and needs no memory, so it cannot fail.
        let _ = self.0.lock_byte(libc::F_UNLCK, LATCH_BYTE);
    }
}

/// The argument of `fcntl(2)` that locks or unlocks one byte.
fn byte_range(lock_type: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

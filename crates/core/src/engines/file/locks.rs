//! The three kinds of kernel lock on a lock file.
//!
//! 1. **flock** is the lock itself, the one that `flock(1)` sees: exclusive for an exclusive hold, shared for a shared
//!    hold and for permits.
//! 2. The **latch**, an open-file-description lock on one byte far beyond the end, is held for microseconds while the
//!    table in the state file changes. Nobody ever waits for it in the kernel.
//! 3. A **mark**, the same on another byte, tells that the claim with this ticket, or the hold with this token, lives:
//!    the kernel drops it with the last descriptor, however the process ends.
//!
//! All three belong to the open file, not to the process: two claims of one process exclude each other, and a child
//! that inherits the descriptor keeps them.

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

use super::{
    dir::Dir,
    encode,
    error::{foreign, sort, sort_errno},
    kernel::{Flock, KernelLocks},
    layout::MAX_NUMBER,
    open::{Missing, open_file},
};
use crate::{EngineError, Fault, Mode, Name, contract::process};

/// Beyond every offset at which a file can have data, so that locks of programs that lock real bytes never meet ours.
const LATCH: i64 = 1 << 62;
const TICKETS: i64 = LATCH + (1 << 60);
const HOLDS: i64 = LATCH + (1 << 61);
const _: () = assert!(MAX_NUMBER as i64 <= 1 << 60, "the three ranges do not overlap");
/// The length of a lock that ends with the file, wherever that is.
const TO_THE_END: i64 = 0;
/// How often the latch is tried before its claim is asked again a little later: long enough for a few holders that run,
/// each for microseconds, and short enough that hundreds who try do not keep those from running.
pub(super) const LATCH_TRIES: usize = 32;
/// The same for a try that may stand beside others, which is not asked again: about a millisecond.
pub(super) const LATCH_TRIES_BESIDE: usize = 1000;

/// A name with the paths that belong to it.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: Name,
    /// The file name, in the lock directory as in its `.state`.
    pub(super) file: CString,
    /// The full path of the lock file.
    pub(super) path: CString,
}

impl Key {
    pub(super) fn new(dir: &Dir, name: &Name) -> Self {
        let file = encode::file_name(name);
        let path = dir.path_of(&file);
        Self { name: name.clone(), file: CString::new(file).expect("an encoded name holds no NUL"), path }
    }

    /// The path of the lock file, for messages and for people.
    pub(super) fn shown(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// What a mark tells to live.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// The claim with this ticket.
    Ticket(u64),
    /// The exclusive hold whose first token this is.
    Hold(u64),
}

impl Mark {
    fn byte(self) -> i64 {
        match self {
            Self::Ticket(number) => TICKETS + number as i64,
            Self::Hold(number) => HOLDS + number as i64,
        }
    }
}

/// One open lock file: one claim's, from its beginning to its end.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    device: libc::dev_t,
    inode: libc::ino_t,
    /// How often this process was forked when it was opened.
    forks: u32,
    /// Whether something was done to it that lasts until it is closed: it was duplicated, or has the mark of a ticket.
    is_bound: AtomicBool,
}

impl LockFile {
    /// Opens the lock file of `key`; `None` when it is not there and is not to be created.
    pub(super) fn open(dir: &Dir, key: &Key, missing: Missing) -> Result<Option<Self>, EngineError> {
        let Some(place) = dir.place(missing)? else { return Ok(None) };
        let opened = open_file(place, &place.locks, &key.file, missing, || key.shown())?;
        Ok(opened.map(|(file, stat)| Self {
            file,
            device: stat.st_dev,
            inode: stat.st_ino,
            forks: process::forks(),
            is_bound: AtomicBool::new(false),
        }))
    }

    /// The flocks on it, as the kernel shows them.
    pub(super) fn flocks(&self, dir: &Dir) -> Vec<Flock> {
        KernelLocks::read(dir.fs()).on(self.device, self.inode)
    }

    /// Whether the path still leads to this very file. Without that, others would lock another one.
    pub(super) fn is_current(&self, key: &Key) -> Result<bool, EngineError> {
        match lstat(key.path.as_c_str()) {
            Ok(stat) if stat.st_dev != self.device || stat.st_ino != self.inode => Ok(false),
            Ok(stat) if stat.st_nlink > 1 => Err(foreign(&key.shown(), "was given another hard link")),
            Ok(_) => Ok(true),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
            Err(errno) => Err(sort_errno("cannot look at", &key.shown(), errno)),
        }
    }

    /// The file itself, for watching it and for handing it down.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Another descriptor of the same open file, closed on exec.
    pub(super) fn duplicate(&self) -> std::io::Result<OwnedFd> {
        self.is_bound.store(true, Ordering::Relaxed);
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Takes the flock for a hold of this mode, unless that would wait. Only for an open file that has none.
    pub(super) fn try_flock(&self, mode: Mode) -> Result<bool, EngineError> {
        let taken = match mode {
            Mode::Exclusive => self.file.try_lock(),
            Mode::Shared | Mode::Permits { .. } => self.file.try_lock_shared(),
        };
        match taken {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(sort("cannot lock", "the lock file", error)),
        }
    }

    /// Lets the flock go. Before any close, for a close tells its watchers before it frees.
    pub(super) fn unflock(&self) {
        // LOCK_UN on an open file fails only for memory the kernel lacks; then the close that follows frees it.
        let _ = self.file.unlock();
    }

    /// Whether it is as one that was just opened, when nothing is locked on it: no other process can have inherited it.
    pub(super) fn is_ours_alone(&self) -> bool {
        self.forks == process::forks() && !self.is_bound.load(Ordering::Relaxed)
    }

    /// Sets a mark, which stays until the last descriptor of this open file is closed, or that of a hold until it is removed.
    pub(super) fn mark(&self, mark: Mark) -> Result<(), EngineError> {
        if matches!(mark, Mark::Ticket(_)) {
            self.is_bound.store(true, Ordering::Relaxed);
        }
        match self.range_lock(libc::F_WRLCK, mark.byte()) {
            Ok(()) => Ok(()),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(foreign(
                "the lock file",
                "carries byte-range locks of a program that does not play by the rules of its table",
            )),
            Err(errno) => Err(sort_errno("cannot mark", "the lock file", errno)),
        }
    }

    /// Removes the mark of a hold of its own; whether that is certain.
    pub(super) fn unmark(&self, token: u64) -> bool {
        self.range_lock(libc::F_UNLCK, Mark::Hold(token).byte()).is_ok()
    }

    /// Whether another open file has set this mark. A lock of another program on the file as a whole lies over marks that nobody has.
    pub(super) fn is_marked(&self, mark: Mark) -> Result<bool, EngineError> {
        let mut probe = range(libc::F_WRLCK, mark.byte());
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut probe))
            .map_err(|errno| sort_errno("cannot probe", "the lock file", errno))?;
        Ok(i32::from(probe.l_type) != libc::F_UNLCK && probe.l_len != TO_THE_END)
    }

    /// Whether another program has locked the file as a whole by `fcntl(2)` or `lockf(3)`: such a lock lies over the latch and all
    /// marks.
    pub(super) fn is_locked_by_another_program(&self) -> Result<bool, EngineError> {
        let mut probe = range(libc::F_WRLCK, LATCH);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut probe))
            .map_err(|errno| sort_errno("cannot probe", "the lock file", errno))?;
        Ok(i32::from(probe.l_type) != libc::F_UNLCK && (probe.l_start, probe.l_len) != (LATCH, 1))
    }

    /// Lets everything go, as the kernel does when the last descriptor is closed.
    #[cfg(test)]
    pub(super) fn free_all(&self) {
        self.unflock();
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&libc::flock { l_len: 0, ..range(libc::F_UNLCK, LATCH) }))
            .unwrap();
    }

    /// Takes the latch, or says [`Fault::Retry`] when its holder does not run.
    pub(super) fn latch(&self) -> Result<Latch<'_>, EngineError> {
        self.latch_within(LATCH_TRIES)
    }

    /// The same, with so many tries.
    pub(super) fn latch_within(&self, tries: usize) -> Result<Latch<'_>, EngineError> {
        for _ in 0..tries {
            if let Some(latch) = self.try_latch()? {
                return Ok(latch);
            }
            std::thread::yield_now();
        }
        Err(EngineError::new(
            Fault::Retry,
            "a process was stopped or is starved while it changed the table of waiters: see `show` and /proc/locks",
        ))
    }

    /// Takes the latch if nobody has it.
    pub(super) fn try_latch(&self) -> Result<Option<Latch<'_>>, EngineError> {
        match self.range_lock(libc::F_WRLCK, LATCH) {
            Ok(()) => Ok(Some(Latch(self))),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(sort_errno("cannot latch", "the lock file", errno)),
        }
    }

    fn range_lock(&self, kind: i32, byte: i64) -> Result<(), Errno> {
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range(kind, byte))).map(drop)
    }
}

/// The latch, held until dropped.
#[derive(Debug)]
pub(super) struct Latch<'a>(&'a LockFile);

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        // Unlocking one's own single byte splits nothing and so needs no memory: it cannot fail.
        let _ = self.0.range_lock(libc::F_UNLCK, LATCH);
    }
}

fn range(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

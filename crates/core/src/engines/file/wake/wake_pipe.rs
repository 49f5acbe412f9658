//! Wake pipes: one named pipe (FIFO) per waiting process. Other processes write to it to wake that process.
//!
//! A *signal* to a waiter is a time stamp on the waiter's record, which tells which claim is meant and since when it
//! has not answered, and one byte into the wake pipe. The waiter answers a signal by asking. No process wakes for a
//! grant to another process.

use std::{
    ffi::{CStr, CString, OsString},
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat},
    sys::stat::{Mode, fstat, fstatat},
    unistd::{UnlinkatFlags, mkfifoat, unlinkat},
};

use super::super::{
    dir::Dir,
    dir::lock_dir::{LockDir, WAKE_PIPE_DIR, share},
    dir::open::{Access, SAFE_FLAGS},
    table::layout::record_offset,
    table::record::{NO_WAKE_PIPE, SIGNALLED_AT},
    table::state::StateFile,
    table::wait_order::StoredRecord,
    wake::readable_fd::ReadableFd,
};
use crate::{EngineError, Env, Instant};

/// How many orphaned pipes one process removes: enough to keep up with crashes, and a bounded time for its first
/// wait.
const MAX_SWEPT: usize = 32;
/// The maximum number of directory entries from which the pipes to remove are chosen.
const MAX_SCANNED: usize = 4096;
/// How often a new pipe is created anew because another process removed it as an orphan before its owner had locked it.
const MAX_TRIES: usize = 8;
/// The size of the pipe, in bytes: the smallest that the kernel supports.
const PIPE_SIZE: usize = 4096;

/// The wake pipe of this process; dropping it removes its file.
#[derive(Debug)]
pub(crate) struct WakePipe {
    /// Its random id, which is its file name.
    pub(crate) id: [u8; 16],
    /// Locked, so that other processes can distinguish a pipe in use from an orphan.
    pipe: ReadableFd<File>,
    /// The directory of the wake pipes.
    dir: File,
    /// The pid of the creator: a forked child must not remove its parent's pipe.
    pid: u32,
}

impl WakePipe {
    /// Creates a wake pipe, and removes some that killed processes left.
    pub(crate) fn new(dir: &Dir, env: &Env) -> Result<Self, Errno> {
        let lock_dir = dir.lock_dir(Access::Existing).ok().flatten().ok_or(Errno::ENOENT)?;
        for _ in 0..MAX_TRIES {
            let mut id = [0; 16];
            env.entropy.fill(&mut id);
            let name = file_name(id);
            let wake_pipe_dir = File::from(create_wake_pipe_dir(lock_dir)?.try_clone().map_err(to_errno)?);
            lock_dir.create_as_owner(|| mkfifoat(&wake_pipe_dir, name.as_c_str(), lock_dir.file_mode()))?;
            let pipe = match open_pipe(&wake_pipe_dir, &name) {
                Ok(pipe) => pipe,
                // Another process swept it before this one could lock it.
                Err(Errno::ENOENT) => continue,
                Err(errno) => {
                    remove_pipe(&wake_pipe_dir, &name);
                    return Err(errno);
                }
            };
            // From here on, dropping `wake_pipe` removes the file.
            let wake_pipe =
                Self { id, pipe: ReadableFd::new(pipe), dir: wake_pipe_dir, pid: std::process::id() };
            if wake_pipe.set_up(lock_dir)? {
                sweep(&dir.path, &wake_pipe.dir, &name);
                return Ok(wake_pipe);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Sets the group and the size of the new pipe and locks it; false if another process has swept it meanwhile.
    fn set_up(&self, lock_dir: &LockDir) -> Result<bool, Errno> {
        let pipe = self.pipe.get();
        if let Some(group) = lock_dir.sharing_group {
            share(pipe, group, lock_dir.file_mode())?;
        }
        // All pipes of a user share one memory budget, and a thousand of the default size would exhaust it. Where
        // even less is left, the kernel has created a small pipe already.
        let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE as i32));
        Ok(pipe.try_lock().is_ok() && fstat(pipe)?.st_nlink == 1)
    }

    /// The descriptor to wait for.
    pub(crate) const fn readable_fd(&self) -> &ReadableFd<File> {
        &self.pipe
    }

    /// Whether a signal arrived since the last call.
    pub(crate) fn was_signalled(&self) -> bool {
        // Reads everything in the pipe. What arrives meanwhile is for the next call.
        matches!(self.pipe.get().read(&mut [0; PIPE_SIZE]), Ok(1..))
    }
}

impl Drop for WakePipe {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // The next process that waits sweeps it if this fails.
            remove_pipe(&self.dir, &file_name(self.id));
        }
    }
}

/// Signals the waiter of a record.
pub(crate) fn signal(dir: &Dir, state_file: &StateFile, stored: &StoredRecord, now: Instant) {
    if stored.record.signalled_at.is_none() {
        // The first unanswered signal counts: from then on the waiter has a second to answer.
        let _ = state_file.write(&now.as_nanos().to_le_bytes(), record_offset(stored.slot) + SIGNALLED_AT);
    }
    // Writes only to a pipe: another kind of file may have been put in its place. A full pipe wakes its owner
    // already.
    if stored.record.wake_pipe != NO_WAKE_PIPE
        && let Ok(Some(lock_dir)) = dir.lock_dir(Access::Existing)
        && let Ok(Some(wake_pipe_dir)) = lock_dir.wake_pipe_dir(Access::Existing)
        && let Ok(mut pipe) = open_pipe(wake_pipe_dir, &file_name(stored.record.wake_pipe))
        && is_pipe(&pipe)
    {
        let _ = pipe.write(&[1]);
    }
}

/// Opens both ends at once: such an open does not wait and does not fail when the owner of the pipe is gone, and a
/// write cannot end this process by SIGPIPE.
fn open_pipe(wake_pipe_dir: impl AsFd, name: &CStr) -> Result<File, Errno> {
    openat(wake_pipe_dir, name, OFlag::O_RDWR | SAFE_FLAGS, Mode::empty()).map(File::from)
}

fn remove_pipe(wake_pipe_dir: impl AsFd, name: &CStr) {
    let _ = unlinkat(wake_pipe_dir, name, UnlinkatFlags::NoRemoveDir);
}

fn is_pipe(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// The value that is stored as the time of the last signal if the waiter was not signalled after it last asked.
const NOT_SIGNALLED: [u8; 8] = [0; 8];

/// Clears the time of the last signal, because the waiter has asked.
pub(crate) fn clear_signal(state_file: &StateFile, slot: u32) -> Result<(), EngineError> {
    state_file.write(&NOT_SIGNALLED, record_offset(slot) + SIGNALLED_AT)
}

/// Whether the waiter was signalled after it last asked. Also true if its record cannot be read.
pub(crate) fn is_signalled(state_file: &StateFile, slot: u32) -> bool {
    let mut bytes = NOT_SIGNALLED;
    state_file.read(&mut bytes, record_offset(slot) + SIGNALLED_AT).is_err() || bytes != NOT_SIGNALLED
}

/// Removes pipes that no process has locked. Starts behind our own pipe in the sorted list, so that each process starts
/// at another point.
fn sweep(dir: &Path, wake_pipe_dir: &File, own_name: &CStr) {
    let Ok(entries) = std::fs::read_dir(dir.join(WAKE_PIPE_DIR)) else { return };
    let mut names: Vec<OsString> =
        entries.flatten().take(MAX_SCANNED).map(|entry| entry.file_name()).collect();
    names.sort();
    let own_end = names.partition_point(|name| name.as_bytes() <= own_name.to_bytes());
    names.rotate_left(own_end);
    for name in names.iter().filter(|name| name.as_bytes() != own_name.to_bytes()).take(MAX_SWEPT) {
        let Ok(name) = CString::new(name.as_bytes()) else { continue };
        let Ok(file) = open_pipe(wake_pipe_dir, &name) else { continue };
        if file.try_lock().is_ok() && is_same_file(&file, wake_pipe_dir, &name) {
            remove_pipe(wake_pipe_dir, &name);
        }
    }
}

/// Whether the path still leads to the opened file.
fn is_same_file(file: &File, wake_pipe_dir: &File, name: &CStr) -> bool {
    let opened = fstat(file.as_fd());
    let at_path = fstatat(wake_pipe_dir, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    matches!((opened, at_path), (Ok(a), Ok(b)) if a.st_ino == b.st_ino)
}

/// The directory of the wake pipes, created if missing.
fn create_wake_pipe_dir(lock_dir: &LockDir) -> Result<&OwnedFd, Errno> {
    // Without it this process has no wake pipe and polls more often.
    lock_dir.wake_pipe_dir(Access::CreateIfMissing).ok().flatten().ok_or(Errno::ENOENT)
}

fn file_name(id: [u8; 16]) -> CString {
    CString::new(format!("{:032x}", u128::from_be_bytes(id))).expect("hex digits hold no NUL")
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

//! Bells: one named pipe per waiting process, into which others write to wake it.
//!
//! A ring is a stamp on the waiter's card (which says *which* claim is meant, and since when it has not answered) and
//! one byte into the bell. No process is woken for another one's turn.

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

use super::{
    dir::Dir,
    layout::record_at,
    lock_dir::{LockDir, WAKE_PIPES, share},
    open::{Missing, SAFELY},
    ready::Ready,
    record::SIGNALLED,
    state::StateFile,
    wait_order::IndexedRecord,
};
use crate::{EngineError, Env, Instant};

/// How many left-over bells one process clears away: enough to win over crashes, a bounded time for its first wait.
const SWEEP: usize = 32;
/// How many bells are looked at to choose them.
const LOOKED_AT: usize = 4096;
/// How often a new bell may be taken for a dead one before its owner has locked it.
const TRIES: usize = 8;
/// The size of the pipe, in bytes: the smallest there is.
const SIZE: usize = 4096;

/// A bell of ours; its file is removed when it drops.
#[derive(Debug)]
pub(super) struct WakePipe {
    pub(super) id: [u8; 16],
    /// Locked, so that others can tell a bell that is used from one that was left.
    pipe: Ready<File>,
    dir: File,
    /// A forked child must not remove its parent's bell.
    pid: u32,
}

impl WakePipe {
    /// Makes a new bell, and clears away some that were left by killed processes.
    pub(super) fn new(dir: &Dir, env: &Env) -> Result<Self, Errno> {
        let place = dir.place(Missing::Leave).ok().flatten().ok_or(Errno::ENOENT)?;
        for _ in 0..TRIES {
            let mut id = [0; 16];
            env.entropy.fill(&mut id);
            let name = file_name(id);
            let wake_pipes = File::from(wake_pipes_of(place)?.try_clone().map_err(errno)?);
            place.make(|| mkfifoat(&wake_pipes, name.as_c_str(), place.file_mode()))?;
            let pipe = match open(&wake_pipes, &name) {
                Ok(pipe) => pipe,
                // Somebody swept it before we could lock it.
                Err(Errno::ENOENT) => continue,
                Err(errno) => {
                    remove(&wake_pipes, &name);
                    return Err(errno);
                }
            };
            // From here on its drop removes it.
            let wake_pipe = Self { id, pipe: Ready::new(pipe), dir: wake_pipes, pid: std::process::id() };
            if wake_pipe.is_ours(place)? {
                sweep(&dir.path, &wake_pipe.dir, &name);
                return Ok(wake_pipe);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Makes it what it should be; false if it was swept meanwhile.
    fn is_ours(&self, place: &LockDir) -> Result<bool, Errno> {
        let pipe = self.pipe.get();
        if let Some(group) = place.shared {
            share(pipe, group, place.file_mode())?;
        }
        // A user's pipes have a common budget, of which a thousand of the default size would be all. Where even less is
        // left, the system has made it small already.
        let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(SIZE as i32));
        Ok(pipe.try_lock().is_ok() && fstat(pipe)?.st_nlink == 1)
    }

    /// For waiting until it rings.
    pub(super) const fn ready(&self) -> &Ready<File> {
        &self.pipe
    }

    /// Whether it was rung since this was asked last.
    pub(super) fn was_signalled(&self) -> bool {
        // All it holds. What comes in between is for the next time.
        matches!(self.pipe.get().read(&mut [0; SIZE]), Ok(1..))
    }
}

impl Drop for WakePipe {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // What is left behind is swept by the next process that waits.
            remove(&self.dir, &file_name(self.id));
        }
    }
}

/// Rings the owner of a card.
pub(super) fn signal(dir: &Dir, state: &StateFile, placed: &IndexedRecord, now: Instant) {
    if placed.record.signalled.is_none() {
        // The first unanswered ring counts: after it the owner has a second to answer.
        let _ = state.write(&now.as_nanos().to_le_bytes(), record_at(placed.slot) + SIGNALLED);
    }
    // Only into a pipe, whatever somebody put into its place. A full one rings already.
    if placed.record.wake_pipe != [0; 16]
        && let Ok(Some(place)) = dir.place(Missing::Leave)
        && let Ok(Some(wake_pipes)) = place.wake_pipes(Missing::Leave)
        && let Ok(mut pipe) = open(wake_pipes, &file_name(placed.record.wake_pipe))
        && is_pipe(&pipe)
    {
        let _ = pipe.write(&[1]);
    }
}

/// Opens both ends at once: that neither waits, nor fails without an owner, nor ends this process by SIGPIPE.
fn open(wake_pipes: impl AsFd, name: &CStr) -> Result<File, Errno> {
    openat(wake_pipes, name, OFlag::O_RDWR | SAFELY, Mode::empty()).map(File::from)
}

fn remove(wake_pipes: impl AsFd, name: &CStr) {
    let _ = unlinkat(wake_pipes, name, UnlinkatFlags::NoRemoveDir);
}

fn is_pipe(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Takes note that the owner of a card has answered.
pub(super) fn answer(state: &StateFile, slot: u32) -> Result<(), EngineError> {
    state.write(&[0; 8], record_at(slot) + SIGNALLED)
}

/// Whether the card was rung since its owner answered.
pub(super) fn is_signalled(state: &StateFile, slot: u32) -> bool {
    let mut bytes = [0; 8];
    state.read(&mut bytes, record_at(slot) + SIGNALLED).is_err() || bytes != [0; 8]
}

/// Removes bells that nobody has locked, from behind our own on, which is somewhere else for every process.
fn sweep(dir: &Path, wake_pipes: &File, own: &CStr) {
    let Ok(entries) = std::fs::read_dir(dir.join(WAKE_PIPES)) else { return };
    let mut names: Vec<OsString> = entries.flatten().take(LOOKED_AT).map(|entry| entry.file_name()).collect();
    names.sort();
    let middle = names.partition_point(|name| name.as_bytes() <= own.to_bytes());
    names.rotate_left(middle);
    for name in names.iter().filter(|name| name.as_bytes() != own.to_bytes()).take(SWEEP) {
        let Ok(name) = CString::new(name.as_bytes()) else { continue };
        let Ok(file) = open(wake_pipes, &name) else { continue };
        if file.try_lock().is_ok() && is_same(&file, wake_pipes, &name) {
            remove(wake_pipes, &name);
        }
    }
}

fn is_same(file: &File, wake_pipes: &File, name: &CStr) -> bool {
    let opened = fstat(file.as_fd());
    let named = fstatat(wake_pipes, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    matches!((opened, named), (Ok(a), Ok(b)) if a.st_ino == b.st_ino)
}

/// Where the bells of a directory are, made if they are not there yet.
fn wake_pipes_of(place: &LockDir) -> Result<&OwnedFd, Errno> {
    // Without it this process has no bell, and looks more often.
    place.wake_pipes(Missing::Create).ok().flatten().ok_or(Errno::ENOENT)
}

fn file_name(id: [u8; 16]) -> CString {
    CString::new(format!("{:032x}", u128::from_be_bytes(id))).expect("hex digits hold no NUL")
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

//! Bells: one named pipe per waiting process, into which others write to wake it.
//!
//! A ring is a stamp on the waiter's card (which says *which* claim is meant, and since when it has not answered) and
//! one byte into the bell. No process is woken for another one's turn.

use std::{
    ffi::{CStr, CString, OsString},
    fs::File,
    io::{Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::stat::{Mode, fstat, fstatat},
    unistd::{UnlinkatFlags, mkfifoat, unlinkat},
};

use super::{
    card::RUNG,
    dir::{BELLS, Dir, share},
    layout::card_at,
    line::Placed,
    open::SAFELY,
    ready::Ready,
    state::StateFile,
};
use crate::{EngineError, Env, Instant};

/// How many left-over bells one process clears away: enough to win over crashes, a bounded time for its first wait.
const SWEEP: usize = 32;
/// How many bells are looked at to choose them.
const LOOKED_AT: usize = 4096;
/// How often a new bell may be taken for a dead one before its owner has locked it.
const TRIES: usize = 8;
/// How many rings are taken out of the pipe at once.
const RINGS: usize = 64;

/// A bell of ours; its file is removed when it drops.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) id: [u8; 16],
    /// Locked, so that others can tell a bell that is used from one that was left.
    pipe: Ready<File>,
    dir: File,
    /// A forked child must not remove its parent's bell.
    pid: u32,
}

impl Bell {
    /// Makes a new bell, and clears away some that were left by killed processes.
    pub(super) fn new(dir: &Dir, env: &Env) -> Result<Self, Errno> {
        let bells = dir.bells.try_clone().map_err(errno)?;
        for _ in 0..TRIES {
            let mut id = [0; 16];
            env.entropy.fill(&mut id);
            let name = file_name(id);
            mkfifoat(&dir.bells, name.as_c_str(), dir.file_mode())?;
            let pipe = match open(dir, &name) {
                Ok(pipe) => pipe,
                // Somebody swept it before we could lock it.
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(errno),
            };
            if let Some(group) = dir.shared {
                share(&pipe, group, dir.file_mode())?;
            }
            let swept = pipe.try_lock().is_err() || fstat(&pipe)?.st_nlink != 1;
            let dir_file = File::from(bells.try_clone().map_err(errno)?);
            let bell = Self { id, pipe: Ready::new(pipe), dir: dir_file, pid: std::process::id() };
            if !swept {
                sweep(dir, &name);
                return Ok(bell);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// For waiting until it rings.
    pub(super) const fn ready(&self) -> &Ready<File> {
        &self.pipe
    }

    /// Whether it was rung since this was asked last.
    pub(super) fn was_rung(&self) -> bool {
        let (mut bytes, mut rung) = ([0; RINGS], false);
        while let Ok(read @ 1..) = self.pipe.get().read(&mut bytes) {
            rung = true;
            if read < RINGS {
                break;
            }
        }
        rung
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // What is left behind is swept by the next process that waits.
            let _ = unlinkat(&self.dir, file_name(self.id).as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Rings the owner of a card.
pub(super) fn ring(dir: &Dir, state: &StateFile, placed: &Placed, now: Instant) {
    if placed.card.rung.is_none() {
        // The first unanswered ring counts: after it the owner has a second to answer.
        let _ = state.write(&now.as_nanos().to_le_bytes(), card_at(placed.slot) + RUNG);
    }
    // Only into a pipe, whatever somebody put into its place. A full one rings already.
    if placed.card.bell != [0; 16]
        && let Ok(mut pipe) = open(dir, &file_name(placed.card.bell))
        && is_pipe(&pipe)
    {
        let _ = pipe.write(&[1]);
    }
}

/// Opens both ends at once: that neither waits, nor fails without an owner, nor ends this process by SIGPIPE.
fn open(dir: &Dir, name: &CStr) -> Result<File, Errno> {
    openat(&dir.bells, name, OFlag::O_RDWR | SAFELY, Mode::empty()).map(File::from)
}

fn is_pipe(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Takes note that the owner of a card has answered.
pub(super) fn answer(state: &StateFile, slot: u32) -> Result<(), EngineError> {
    state.write(&[0; 8], card_at(slot) + RUNG)
}

/// Whether the card was rung since its owner answered.
pub(super) fn is_rung(state: &StateFile, slot: u32) -> bool {
    let mut bytes = [0; 8];
    state.read(&mut bytes, card_at(slot) + RUNG).is_err() || bytes != [0; 8]
}

/// Removes bells that nobody has locked, from behind our own on, which is somewhere else for every process.
fn sweep(dir: &Dir, own: &CStr) {
    let Ok(entries) = std::fs::read_dir(dir.path.join(BELLS)) else { return };
    let mut names: Vec<OsString> = entries.flatten().take(LOOKED_AT).map(|entry| entry.file_name()).collect();
    names.sort();
    let middle = names.partition_point(|name| name.as_bytes() <= own.to_bytes());
    names.rotate_left(middle);
    for name in names.iter().filter(|name| name.as_bytes() != own.to_bytes()).take(SWEEP) {
        let Ok(name) = CString::new(name.as_bytes()) else { continue };
        let Ok(file) = open(dir, &name) else { continue };
        if file.try_lock().is_ok() && is_same(&file, dir, &name) {
            let _ = unlinkat(&dir.bells, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn is_same(file: &File, dir: &Dir, name: &CStr) -> bool {
    let opened = fstat(file.as_fd());
    let named = fstatat(&dir.bells, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    matches!((opened, named), (Ok(a), Ok(b)) if a.st_ino == b.st_ino)
}

fn file_name(id: [u8; 16]) -> CString {
    CString::new(format!("{:032x}", u128::from_be_bytes(id))).expect("hex digits hold no NUL")
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

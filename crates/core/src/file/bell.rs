//! Bells: one file per waiting process, which others touch to wake it.
//!
//! A ring is a stamp on the waiter's card (which says *which* claim is meant, and since when it has not answered) and
//! one `utimensat` on the bell, which the owner's inotify reports. No process is woken for another one's turn.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    fs::File,
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat},
    sys::{
        stat::{Mode, UtimensatFlags, fstat, fstatat, utimensat},
        time::TimeSpec,
    },
    unistd::{UnlinkatFlags, unlinkat},
};

use super::{
    card::RUNG,
    dir::{BELLS, Dir, share},
    layout::card_at,
    line::Placed,
    state::StateFile,
};
use crate::{EngineError, Env, Instant};

/// How many left-over bells one process clears away: enough to win over crashes, a bounded time for its first wait.
const SWEEP: usize = 32;
/// How many bells are looked at to choose them.
const LOOKED_AT: usize = 4096;
/// How often a new bell may be taken for a dead one before its owner has locked it.
const TRIES: usize = 8;

/// A bell of ours; its file is removed when it drops.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) id: [u8; 16],
    /// Locked, so that others can tell a bell that is used from one that was left.
    file: File,
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
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let fd = openat(&dir.bells, name.as_c_str(), flags, dir.file_mode())?;
            if let Some(group) = dir.shared {
                share(&fd, group, dir.file_mode())?;
            }
            let bell = Self {
                id,
                file: File::from(fd),
                dir: File::from(bells.try_clone().map_err(errno)?),
                pid: std::process::id(),
            };
            let locked = bell.file.try_lock().is_ok();
            // Somebody may have swept it between its creation and our lock.
            if locked && fstat(&bell.file)?.st_nlink == 1 {
                sweep(dir, &name);
                return Ok(bell);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// The file, for watching it.
    pub(super) fn file(&self) -> &File {
        &self.file
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
    if placed.card.bell != [0; 16] {
        let name = file_name(placed.card.bell);
        let now = TimeSpec::UTIME_NOW;
        let _ = utimensat(&dir.bells, name.as_c_str(), &now, &now, UtimensatFlags::NoFollowSymlink);
    }
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
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let Ok(fd) = openat(&dir.bells, name.as_os_str(), flags, Mode::empty()) else { continue };
        let file = File::from(fd);
        if file.try_lock().is_ok() && is_same(&file, dir, name) {
            let _ = unlinkat(&dir.bells, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn is_same(file: &File, dir: &Dir, name: &OsStr) -> bool {
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

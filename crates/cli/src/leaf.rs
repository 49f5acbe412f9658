//! The control group of CMD, a *leaf* below the group of leasehold: it ends with the lock, whoever its processes became.
//!
//! The guardian holds a lock (`flock`) on the leaf as long as it lives. Where another process can lock the leaf, both processes of
//! its run were killed: see `sweep`.

use std::{
    cell::Cell,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::{
    errno::Errno,
    sys::stat::Mode,
    unistd::{Pid, Uid, mkdir},
};

use crate::{cgroup::Group, delegation, spawn::Entrance, waiter::now};

/// The mode of a leaf that is in use: nobody but its owner can lock what he cannot open, and what runs in it as another user
/// still reads the files that it knows by name.
const IN_USE: u32 = 0o711;
/// And of one that is not ended by anybody, for CMD has ended by itself: as any other group.
const LEFT: u32 = 0o755;
/// So often another one is made where somebody looked at it before it was locked.
const ATTEMPTS: u32 = 8;

/// A leaf of this process.
pub(crate) struct Leaf {
    group: Group,
    /// The file through which a process gets into it.
    processes: File,
    home: Group,
    is_removed: Cell<bool>,
}

/// What became of a leaf, of which nothing is to be ended any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is gone.
    Nothing,
    /// Something is moving, or ending: look again.
    Some,
    /// It stays, for there are groups in it that others made, or what is in it does not move.
    Stays,
}

impl Leaf {
    /// Makes one in a group, for the run of a process.
    ///
    /// # Errors
    /// Why that is not to be, in words.
    pub(crate) fn make(home: Group, front: Pid) -> Result<Self, String> {
        delegation::check(home.path())?;
        for _ in 0..ATTEMPTS {
            let path = home.path().join(name(front));
            let failed = |error: io::Error| format!("{}: {error}", path.display());
            mkdir(&path, Mode::from_bits_truncate(IN_USE)).map_err(|errno| failed(errno.into()))?;
            // Who looks for what others have left may have found it in between.
            if let Ok(group) = Group::open(&path)
                && group.dir().try_lock().is_ok()
                && let Ok(processes) = group.entrance()
            {
                // Whatever the mask of this process is.
                group.dir().set_permissions(Permissions::from_mode(IN_USE)).map_err(failed)?;
                return Ok(Self { group, processes, home, is_removed: Cell::new(false) });
            }
            let _ = fs::remove_dir(&path);
        }
        Err(format!(
            "{}: each new control group there is taken by another program at once",
            home.path().display()
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        self.group.path()
    }

    /// How a process gets into it.
    pub(crate) const fn entrance(&self) -> Entrance<'_> {
        Entrance { group: self.group.dir(), processes: &self.processes }
    }

    /// Kills whatever is in it: whether all of it ends.
    pub(crate) fn kill(&self) -> bool {
        self.group.kill().is_ok()
    }

    pub(crate) fn is_populated(&self) -> bool {
        self.group.is_populated()
    }

    /// Moves what CMD left behind to where it would be without us.
    pub(crate) fn dismiss(&self) -> Left {
        // As it mostly is: nothing was left behind.
        if self.group.remove_alone().is_ok() {
            self.is_removed.set(true);
            return Left::Nothing;
        }
        if !self.group.is_populated() {
            return if self.group.remove().is_ok() { Left::Nothing } else { Left::Stays };
        }
        let heirs = self.group.processes().unwrap_or_default();
        if heirs.is_empty() && !self.group.below().is_empty() {
            return Left::Stays;
        }
        let moved = heirs.into_iter().map(|pid| self.home.take(pid));
        // One that has ended needs not be moved.
        let is_barred = |error: &io::Error| error.raw_os_error() != Some(Errno::ESRCH as i32);
        if moved.filter_map(Result::err).any(|error| is_barred(&error)) { Left::Stays } else { Left::Some }
    }

    /// From now on nobody ends what is in it.
    pub(crate) fn spare(&self) {
        if !self.is_removed.get() {
            let _ = self.group.dir().set_permissions(Permissions::from_mode(LEFT));
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // One in which something goes on stays.
        if !self.is_removed.get() {
            let _ = self.group.remove();
        }
    }
}

/// Unlike that of any other leaf, ever since the machine was booted.
fn name(front: Pid) -> String {
    format!("leasehold-{front}-{:x}", now().as_nanos())
}

/// Whether a group is named as a leaf is.
fn is_name(name: &str) -> bool {
    let parts = name.strip_prefix("leasehold-").and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(pid, time)| pid.parse::<u32>().is_ok() && u64::from_str_radix(time, 16).is_ok())
}

/// What a group is to somebody who looks for what others have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafState {
    /// A leaf of this user whose owners are dead. It is locked by the look, so that nobody takes it into use.
    Orphan,
    /// A leaf of this user out of which its owners let go what was in it.
    Spared,
    /// It is in use, or is none of this user's leaves.
    Other,
}

pub(crate) fn state(group: &Group) -> LeafState {
    let is_leaf = group.path().file_name().and_then(|name| name.to_str()).is_some_and(is_name);
    let Ok(dir) = group.dir().metadata() else { return LeafState::Other };
    if !is_leaf || dir.uid() != Uid::effective().as_raw() {
        return LeafState::Other;
    }
    // Shared: several may look, and each waits until what is in it has ended.
    match (dir.mode() & 0o7777, group.dir().try_lock_shared()) {
        (IN_USE, Ok(())) => LeafState::Orphan,
        (LEFT, Ok(())) => LeafState::Spared,
        _ => LeafState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_known_by_its_name() {
        assert!(is_name(&name(Pid::from_raw(4711))));
        for other in
            ["leasehold", "leasehold-1", "leasehold-x-1", "leasehold-1-", "leasehold-1-1.service", "a"]
        {
            assert!(!is_name(other), "{other}");
        }
    }
}

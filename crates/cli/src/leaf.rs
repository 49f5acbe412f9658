//! The control group of CMD: a *leaf* below the control group of leasehold. The processes in it end with the lock, even
//! those that have become another user.
//!
//! The guardian has a file lock (`flock`) on the leaf for as long as it lives. If another process can lock a leaf that
//! is in use, the guardian was killed. If the front was killed too, another run ends the processes in the leaf: see
//! `sweep`.

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

use crate::{cgroup::Group, delegation, event_loop::now, spawn::Entrance};

/// The mode of a leaf in use. Only the owner can open the directory, so only the owner can lock it. Processes of other
/// users that run in the leaf can still read its files by name.
const IN_USE_MODE: u32 = 0o711;
/// The mode of a spared leaf: no run ends the processes in it, because its CMD has ended by itself. It is also the mode
/// of groups that are no leaves.
const SPARED_MODE: u32 = 0o755;
/// The largest number of attempts to create a leaf. An attempt fails if another process locks the new leaf first.
const MAX_ATTEMPTS: u32 = 8;

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// The leaf of this process's run.
pub(crate) struct Leaf {
    group: Group,
    /// The file through which a process moves into the leaf.
    processes: File,
    /// The control group of leasehold. The leaf is below it.
    parent_group: Group,
    /// Whether the leaf was removed already.
    is_removed: Cell<bool>,
}

/// The result of moving the processes that CMD left behind out of its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveOut {
    /// The leaf is empty and was removed.
    Removed,
    /// Processes are still being moved or are ending, so the caller has to call again.
    InProgress,
    /// The leaf stays, because other programs created groups in it or its processes cannot be moved.
    Stays,
}

impl Leaf {
    /// Creates a leaf below `parent_group`, for the run of the process `front`.
    ///
    /// # Errors
    /// A text that says why there is no leaf.
    pub(crate) fn create(parent_group: Group, front: Pid) -> Result<Self, String> {
        delegation::check_may_create_below(parent_group.path())?;
        for _ in 0..MAX_ATTEMPTS {
            let path = parent_group.path().join(new_leaf_name(front));
            let failed = |error: io::Error| format!("{}: {error}", path.display());
            mkdir(&path, Mode::from_bits_truncate(IN_USE_MODE)).map_err(|errno| failed(errno.into()))?;
            // A process that looks for leaves of killed runs may have found and locked this one since it was created.
            if let Ok(group) = Group::open(&path)
                && group.dir().try_lock().is_ok()
                && let Ok(processes) = group.entrance()
            {
                // The mode is set here, because the mode at the creation depends on the umask of this process.
                group.dir().set_permissions(Permissions::from_mode(IN_USE_MODE)).map_err(failed)?;
                return Ok(Self { group, processes, parent_group, is_removed: Cell::new(false) });
            }
            let _ = fs::remove_dir(&path);
        }
        Err(format!("{}: another program locks each new control group there", parent_group.path().display()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.group.path()
    }

    /// The files through which a process gets into the leaf.
    pub(crate) const fn entrance(&self) -> Entrance<'_> {
        Entrance { group: self.group.dir(), processes: &self.processes }
    }

    /// Kills all processes in the leaf. Returns true if all of them will end.
    pub(crate) fn kill(&self) -> bool {
        self.group.kill().is_ok()
    }

    pub(crate) fn is_populated(&self) -> bool {
        self.group.is_populated()
    }

    /// Moves the processes that CMD left behind to the control group in which they would be without leasehold.
    pub(crate) fn move_leftovers_out(&self) -> MoveOut {
        // Usually CMD left no process behind.
        if self.group.remove_if_empty().is_ok() {
            self.is_removed.set(true);
            return MoveOut::Removed;
        }
        if !self.group.is_populated() {
            return if self.group.remove().is_ok() { MoveOut::Removed } else { MoveOut::Stays };
        }
        let leftovers = self.group.processes().unwrap_or_default();
        if leftovers.is_empty() && !self.group.subgroups().is_empty() {
            return MoveOut::Stays;
        }
        let moved = leftovers.into_iter().map(|pid| self.parent_group.move_in(pid));
        // If a process has ended meanwhile, it need not be moved.
        let cannot_move = |error: &io::Error| error.raw_os_error() != Some(Errno::ESRCH as i32);
        if moved.filter_map(Result::err).any(|error| cannot_move(&error)) {
            MoveOut::Stays
        } else {
            MoveOut::InProgress
        }
    }

    /// Marks the leaf so that no run ends the processes in it.
    pub(crate) fn spare(&self) {
        if !self.is_removed.get() {
            let _ = self.group.dir().set_permissions(Permissions::from_mode(SPARED_MODE));
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // A leaf in which a process runs stays, because it cannot be removed.
        if !self.is_removed.get() {
            let _ = self.group.remove();
        }
    }
}

/// A name that no other leaf has had since the boot of the machine.
fn new_leaf_name(front: Pid) -> String {
    format!("leasehold-{front}-{:x}", now().as_nanos())
}

/// Whether a group has the name of a leaf.
fn is_leaf_name(name: &str) -> bool {
    let parts = name.strip_prefix("leasehold-").and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(pid, time)| pid.parse::<u32>().is_ok() && u64::from_str_radix(time, 16).is_ok())
}

/// What a control group means to a run that looks for leaves of killed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafState {
    /// A leaf of this user that no guardian has locked: its guardian is dead, or has created the leaf and not locked it
    /// yet. The check has locked the leaf, so that no run takes it into use.
    Orphan,
    /// A leaf of this user that its own run has marked, so that no run ends the processes in the leaf.
    Spared,
    /// The group is in use, or is not a leaf of this user.
    Other,
}

/// What a control group means to a run that looks for leaves of killed runs.
pub(crate) fn leaf_state(group: &Group) -> LeafState {
    let is_leaf = group.path().file_name().and_then(|name| name.to_str()).is_some_and(is_leaf_name);
    let Ok(dir) = group.dir().metadata() else { return LeafState::Other };
    if !is_leaf || dir.uid() != Uid::effective().as_raw() {
        return LeafState::Other;
    }
    // The lock is shared, so that several runs can check the leaf at the same time. Each of them waits until the
    // processes in the leaf have ended.
    match (dir.mode() & PERMISSIONS, group.dir().try_lock_shared()) {
        (IN_USE_MODE, Ok(())) => LeafState::Orphan,
        (SPARED_MODE, Ok(())) => LeafState::Spared,
        _ => LeafState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_recognized_by_its_name() {
        assert!(is_leaf_name(&new_leaf_name(Pid::from_raw(4711))));
        for other in
            ["leasehold", "leasehold-1", "leasehold-x-1", "leasehold-1-", "leasehold-1-1.service", "a"]
        {
            assert!(!is_leaf_name(other), "{other}");
        }
    }
}

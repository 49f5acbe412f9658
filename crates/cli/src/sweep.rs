//! Ends processes that a run left behind when both of its leasehold processes were killed. Such processes run on
//! without a lock, in the control group of their run. On the file engine they have the descriptor of the lock, so that
//! no other claim is granted.

use std::time::Duration;

use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    cgroup::Group,
    event_loop::{EventLoop, now},
    leaf::{LeafState, leaf_state},
    log,
    text::print_message,
};

/// The interval at which the sweep checks whether killed processes have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How long the sweep waits for the end of killed processes. A process that waits for a disk ends late or never, but it
/// does nothing meanwhile.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Ends the processes of killed runs in the groups below `parent_group`, and waits until they have ended, but for at
/// most [`KILL_LIMIT`]. If a signal for which `stop` returns true ended the wait, returns this signal.
///
/// # Errors
/// An error of the operating system.
pub(crate) fn sweep(
    parent_group: &Group,
    verbose: bool,
    event_loop: &EventLoop,
    stop: impl Fn(Signal) -> bool,
) -> Result<Option<Signal>, Errno> {
    let mut orphans = orphans(parent_group, verbose);
    let give_up_at = now() + KILL_LIMIT;
    while !orphans.is_empty() {
        orphans.retain(|orphan| !remove_or_kill(orphan));
        let Some(orphan) = orphans.first() else { break };
        if now() >= give_up_at {
            print_message(&format!(
                "processes that an earlier run left in {} do not end: do they wait for a disk?",
                orphan.path().display()
            ));
            break;
        }
        if let Some(signal) = event_loop.wait(Some(CHECK_INTERVAL))?.filter(|signal| stop(*signal)) {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

/// Kills the processes of killed runs in the groups below `parent_group`. Does not wait for their end. Returns whether
/// there were such processes.
pub(crate) fn kill_orphans(parent_group: &Group, verbose: bool) -> bool {
    orphans(parent_group, verbose).iter().filter(|orphan| !remove_or_kill(orphan)).count() > 0
}

/// The control groups of killed runs below `parent_group`.
fn orphans(parent_group: &Group, verbose: bool) -> Vec<Group> {
    let mut orphans = Vec::new();
    collect_orphans(parent_group, &mut orphans);
    for orphan in orphans.iter().filter(|orphan| verbose && orphan.is_populated()) {
        log::print_message(&format!(
            "an earlier run was killed: its processes are being ended in {}",
            orphan.path().display()
        ));
    }
    orphans
}

/// Collects the control groups of killed runs. Removes spared groups that are empty.
fn collect_orphans(parent_group: &Group, orphans: &mut Vec<Group>) {
    for group in parent_group.subgroups() {
        match leaf_state(&group) {
            LeafState::Orphan => orphans.push(group),
            LeafState::Spared => {
                collect_orphans(&group, orphans);
                let _ = group.remove();
            }
            LeafState::Other => {}
        }
    }
}

/// Removes the group if it has no processes; otherwise kills the processes. Returns true if the group had no processes.
fn remove_or_kill(orphan: &Group) -> bool {
    if orphan.is_populated() {
        let _ = orphan.kill();
        return false;
    }
    // It is no error if another run has removed the group.
    let _ = orphan.remove();
    true
}

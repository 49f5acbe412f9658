//! Ends processes of earlier runs that were killed as a whole. Those processes run on without a lock, in the control
//! groups of their runs; on the file engine they keep the descriptor of the lock, so that no other claim is granted.

use std::time::Duration;

use nix::{errno::Errno, sys::signal::Signal};

use crate::{
    cgroup::Group,
    leaf::{LeafState, state},
    log,
    text::print_message,
    waiter::{Waiter, now},
};

/// How often the sweep checks whether killed processes have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How long it checks. A process that waits for a disk ends late or never, and does nothing until then.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Ends the processes in groups without an owner, below `home`. Returns when they have ended, or a signal that came
/// meanwhile.
///
/// # Errors
/// The operating system's.
pub(crate) fn sweep(
    home: &Group,
    verbose: bool,
    waiter: &Waiter,
    stop: impl Fn(Signal) -> bool,
) -> Result<Option<Signal>, Errno> {
    let mut orphans = orphans(home, verbose);
    let end = now() + END_WITHIN;
    while !orphans.is_empty() {
        orphans.retain(|orphan| !is_over(orphan));
        let Some(orphan) = orphans.first() else { break };
        if now() >= end {
            print_message(&format!(
                "processes that an earlier run left in {} do not end: do they wait for a disk?",
                orphan.path().display()
            ));
            break;
        }
        if let Some(signal) = waiter.wait(Some(LOOK_AGAIN))?.filter(|signal| stop(*signal)) {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

/// Kills the processes in groups without an owner, below `home`, and does not wait for their end. Returns whether there
/// are any.
pub(crate) fn begin(home: &Group, verbose: bool) -> bool {
    orphans(home, verbose).iter().filter(|orphan| !is_over(orphan)).count() > 0
}

fn orphans(home: &Group, verbose: bool) -> Vec<Group> {
    let mut orphans = Vec::new();
    collect(home, &mut orphans);
    for orphan in orphans.iter().filter(|orphan| verbose && orphan.is_populated()) {
        log::line(&format!(
            "an earlier run was killed: its processes are being ended in {}",
            orphan.path().display()
        ));
    }
    orphans
}

/// Collects the groups without an owner. Removes spared groups that are empty.
fn collect(home: &Group, orphans: &mut Vec<Group>) {
    for group in home.below() {
        match state(&group) {
            LeafState::Orphan => orphans.push(group),
            LeafState::Spared => {
                collect(&group, orphans);
                let _ = group.remove();
            }
            LeafState::Other => {}
        }
    }
}

/// Whether a group has no processes any more. If so, it removes the group; if not, it kills the processes.
fn is_over(orphan: &Group) -> bool {
    if orphan.is_populated() {
        let _ = orphan.kill();
        return false;
    }
    // Another run may have removed the group.
    let _ = orphan.remove();
    true
}

//! The guarantee of the file engine in a directory, and what weakens it.

use std::path::Path;

use nix::unistd::Gid;

use super::kernel::OVERLAY;
use crate::{Guarantee, Level};

/// `shared`: the group that shares the directory; `fs`: the number of its file system type.
pub(super) fn guarantee(dir: &Path, shared: Option<Gid>, fs: Option<i64>) -> Guarantee {
    let shown = dir.display();
    let mut guarantee = Guarantee::new(
        Level::Exact,
        &[
            "the kernel of this host keeps the lock until its holder lets go or is gone: other hosts are not excluded",
            "flock(1) on the lock file excludes and is excluded, but takes no place in line, counts no permits and does not see --at-least",
            "a lock file that is removed or replaced ends the exclusion: holders are told at their next check",
            "--at-least and the order of waiters end with a reboot; tokens go on growing",
        ],
    );
    guarantee.note(match shared {
        Some(group) => format!("the directory {shown} is shared by group {group}"),
        None => format!("only one user's programs meet in {shown}"),
    });
    if fs == Some(OVERLAY) {
        guarantee.lower(
            &format!("the file system of {shown}"),
            "overlay",
            "that of a volume",
            "an overlay is often a layer of one container, and programs outside of the container are not excluded",
        );
    }
    guarantee
}

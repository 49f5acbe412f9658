//! The guarantee of the file engine in a directory, and what weakens it.

use std::path::Path;

use nix::unistd::Gid;

use super::kernel::OVERLAY;
use crate::{Guarantee, Level};

/// The guarantee in the directory `dir`. `sharing_group` is the group that shares it, if any; `fs_type` is the number
/// of its file system type.
pub(super) fn guarantee(dir: &Path, sharing_group: Option<Gid>, fs_type: Option<i64>) -> Guarantee {
    let shown_dir = dir.display();
    let mut guarantee = Guarantee::new(
        Level::Exact,
        &[
            "the kernel of this host holds the lock until its holder releases it or ends: other hosts are not excluded",
            "flock(1) on the lock file excludes and is excluded, but does not wait in the queue, counts no permits and ignores --at-least",
            "a lock file that is removed or replaced ends the exclusion: holders notice it at their next check",
            "--at-least and the order of waiters end at a reboot; tokens keep growing",
        ],
    );
    guarantee.note(match sharing_group {
        Some(group) => format!("the directory {shown_dir} is shared by group {group}"),
        None => format!("{shown_dir} serves the programs of one user only"),
    });
    if fs_type == Some(OVERLAY) {
        guarantee.lower(
            &format!("the file system of {shown_dir}"),
            "overlay",
            "that of a volume",
            "an overlay is often a layer of one container, and programs outside of the container are not excluded",
        );
    }
    guarantee
}

//! The guarantee of a file on this machine.

use std::path::Path;

use leasehold_core::{Guarantee, Level, is_on_overlay};

/// The guarantee of a file. It depends on no setting of SQLite: each connection itself sets that a commit is on the
/// disk before it counts, and the clock has no steps. Only the place of the file is checked.
pub(super) fn guarantee(path: &Path) -> Guarantee {
    let notes = [
        "all processes that use the file must run on one machine, under one kernel",
        "a restart of the machine frees all locks and ends all minimum hold times",
        "replace or delete the file while it is in use, or restore an older copy, and locks are granted that others still hold: \
         these holders are notified at their next renewal, within a third of their ttl",
    ];
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &notes);
    if is_on_overlay(path) {
        guarantee.lower(
            &format!("the file system of {}", path.display()),
            "overlay",
            "that of a volume",
            "an overlay is often a layer of one container, and programs outside of the container are not excluded",
        );
    }
    guarantee
}

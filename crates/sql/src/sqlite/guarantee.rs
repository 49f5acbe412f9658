//! The guarantee of a file on this machine.

use leasehold_core::{Guarantee, Level};

/// The guarantee of a file, which depends on no setting of the user: each connection itself sets that a commit is on
/// the disk before it counts, and the clock has no steps. So there is nothing to configure and nothing to check.
pub(super) fn guarantee() -> Guarantee {
    let notes = [
        "all processes that use the file must run on one machine, under one kernel",
        "a restart of the machine frees all locks and ends all minimum hold times",
        "replace or delete the file while it is in use, or restore an older copy, and locks are granted that others still hold: \
         these holders are notified at their next renewal, within a third of their ttl",
    ];
    Guarantee::new(Level::LeaseBounded, &notes)
}

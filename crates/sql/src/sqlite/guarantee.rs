//! The guarantee of a file on this machine.

use leasehold_core::{Guarantee, Level};

/// Every commit is on the disk before it counts, because each connection sets that itself; the clock has no steps. So
/// there is nothing to configure and nothing to check.
pub(super) fn guarantee() -> Guarantee {
    let notes = [
        "all processes that use the file must run on one machine, under one kernel",
        "a restart of the machine frees all locks and ends all minimum hold times",
        "replace or delete the file while it is in use, or restore an older copy, and locks are granted that others still hold: \
         these holders are notified at their next renewal, within a third of their ttl",
    ];
    Guarantee::new(Level::LeaseBounded, &notes)
}

//! What a file on this machine promises.

use leasehold_core::{Guarantee, Level};

/// Every commit is on the disk before it counts, for each connection says so itself; the clock knows no steps. So nothing about it is
/// to be configured, and nothing to be asked.
pub(super) fn guarantee() -> Guarantee {
    let notes = [
        "all who use the file have to run on one machine, under one kernel",
        "a restart of the machine frees all locks, also names that were to be kept taken for longer",
        "replace or delete the file while it is in use, or copy an older one back, and locks are granted that others still hold: \
         they are told at their next renewal, within a third of their ttl",
    ];
    Guarantee::new(Level::LeaseBounded, &notes)
}

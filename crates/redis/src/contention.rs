//! Remembers the hash slots in which several claims wanted one name lately. Requests about names of these slots skip
//! the fast path and call the full script.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::Instant;

/// How long a slot counts as contended after one of its names was wanted by several claims, or needed the full script.
const CONTENTION_MEMORY: Duration = Duration::from_secs(5);
/// The number of entries of the table: several slots share one entry, so a slot can wrongly count as contended. The
/// only effect is that requests about its names do not use the fast path.
const ENTRIES: usize = 1024;

/// For each entry the moment until which it counts as contended, in nanoseconds.
pub(crate) struct Contention(Box<[AtomicU64]>);

impl Default for Contention {
    fn default() -> Self {
        Self((0..ENTRIES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Contention {
    /// Notes that a name of this slot is contended.
    pub(crate) fn note(&self, slot: u16, now: Instant) {
        self.0[usize::from(slot) % ENTRIES].store(now.after(CONTENTION_MEMORY).as_nanos(), Ordering::Relaxed);
    }

    /// Whether names of this slot are likely to be contended.
    pub(crate) fn is_likely(&self, slot: u16, now: Instant) -> bool {
        now.as_nanos() < self.0[usize::from(slot) % ENTRIES].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contended_slot_is_remembered_for_a_while() {
        let contention = Contention::default();
        let after = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        assert!(!contention.is_likely(7, after(10)));
        contention.note(7, after(10));
        assert!(contention.is_likely(7, after(14)) && !contention.is_likely(7, after(15)));
        assert!(!contention.is_likely(8, after(10)));
    }
}

//! Where names were wanted by several lately: what is asked about them needs the whole verb, and is not tried without it first.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::Instant;

/// For so long after a name was found to be wanted by several, or not to be plain, its slot is taken for such.
const MEMORY: Duration = Duration::from_secs(5);
/// Slots that share what is remembered: a name that is taken for contended and is not costs what it cost without this.
const PLACES: usize = 1024;

/// The newest moment at which that was found, by slot.
pub(crate) struct Contention(Box<[AtomicU64]>);

impl Default for Contention {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Contention {
    /// It was found of a name in this slot.
    pub(crate) fn note(&self, slot: u16, now: Instant) {
        self.0[usize::from(slot) % PLACES].store(now.after(MEMORY).as_nanos(), Ordering::Relaxed);
    }

    /// Whether it is to be expected of the names of this slot.
    pub(crate) fn is_likely(&self, slot: u16, now: Instant) -> bool {
        now.as_nanos() < self.0[usize::from(slot) % PLACES].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_remembered_for_a_while_and_others_are_not() {
        let contention = Contention::default();
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        assert!(!contention.is_likely(7, at(10)));
        contention.note(7, at(10));
        assert!(contention.is_likely(7, at(14)) && !contention.is_likely(7, at(15)));
        assert!(!contention.is_likely(8, at(10)));
    }
}

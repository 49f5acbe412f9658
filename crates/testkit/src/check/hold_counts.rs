//! The holds at one moment, and which further holds are allowed.

use std::collections::BTreeMap;

use leasehold_core::{KnownMode, Mode};

/// The number of holds by mode.
#[derive(Default)]
pub(super) struct HoldCounts {
    exclusive: usize,
    shared: usize,
    /// For each limit of permits: the number of holders, and the number of permits that they hold.
    permits: BTreeMap<u32, (usize, u64)>,
}

impl HoldCounts {
    /// Whether one more hold in this mode is allowed beside the counted holds.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        let no_lock = self.exclusive == 0 && self.shared == 0;
        match mode.known() {
            KnownMode::Exclusive => no_lock && self.permits.is_empty(),
            KnownMode::Shared => self.exclusive == 0 && self.permits.is_empty(),
            KnownMode::Permits { count, limit } => {
                let held = self.permits.get(&limit).map_or(0, |(_, held)| *held);
                no_lock
                    && self.permits.keys().all(|other| *other == limit)
                    && held + u64::from(count) <= limit.into()
            }
        }
    }

    pub(super) fn add(&mut self, mode: Mode) {
        match mode.known() {
            KnownMode::Exclusive => self.exclusive += 1,
            KnownMode::Shared => self.shared += 1,
            KnownMode::Permits { count, limit } => {
                let (holders, held) = self.permits.entry(limit).or_default();
                (*holders, *held) = (*holders + 1, *held + u64::from(count));
            }
        }
    }

    pub(super) fn remove(&mut self, mode: Mode) {
        match mode.known() {
            KnownMode::Exclusive => self.exclusive -= 1,
            KnownMode::Shared => self.shared -= 1,
            KnownMode::Permits { count, limit } => {
                let Some((holders, held)) = self.permits.get_mut(&limit) else { return };
                (*holders, *held) = (*holders - 1, *held - u64::from(count));
                if *holders == 0 {
                    self.permits.remove(&limit);
                }
            }
        }
    }
}

impl FromIterator<Mode> for HoldCounts {
    fn from_iter<I: IntoIterator<Item = Mode>>(modes: I) -> Self {
        let mut hold_counts = Self::default();
        modes.into_iter().for_each(|mode| hold_counts.add(mode));
        hold_counts
    }
}

/// Whether holds in these modes can conflict.
pub(super) fn can_conflict(a: Mode, b: Mode) -> bool {
    (a, b) != (Mode::Shared, Mode::Shared)
}

/// The number of permits in this mode; 0 for an exclusive or shared hold.
pub(super) fn permit_count(mode: Mode) -> u64 {
    match mode.known() {
        KnownMode::Permits { count, .. } => count.into(),
        KnownMode::Exclusive | KnownMode::Shared => 0,
    }
}

//! Tombstones: the ids of claims that can never be granted again.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
};

use crate::{ClaimId, Instant};

/// The most dead claims in one list; the oldest are dropped. An engine whose requests can be late for longer than it
/// takes to end so many claims must shard its tombstones or bound its clients.
pub const MAX_TOMBSTONES: usize = 4096;

/// The ids of ended claims, each remembered until no earlier request of it can arrive any more.
///
/// Ids are unique over all names, so one list serves many lock states.
#[derive(Debug, Default)]
pub struct Tombstones {
    /// Until when each id is remembered.
    expiries: HashMap<ClaimId, Instant, BuildHasherDefault<IdHasher>>,
    /// Each id with its expiry, in the order in which the tombstones were added. An id that was added again is in here
    /// twice, and the later entry counts.
    order: VecDeque<(ClaimId, Instant)>,
}

impl Tombstones {
    /// Remembers `id` until `until`.
    pub fn add(&mut self, id: ClaimId, now: Instant, until: Instant) {
        self.forget_expired(now);
        if until <= now {
            return;
        }
        match self.expiries.entry(id) {
            Entry::Occupied(older) if *older.get() >= until => return,
            entry => drop(entry.insert_entry(until)),
        }
        self.order.push_back((id, until));
        if self.order.len() > MAX_TOMBSTONES {
            self.forget_oldest();
        }
    }

    /// Whether `id` has a tombstone.
    #[must_use]
    pub fn contains(&self, id: ClaimId, now: Instant) -> bool {
        self.expiries.get(&id).is_some_and(|&until| until > now)
    }

    /// Drops tombstones that have expired.
    pub fn forget_expired(&mut self, now: Instant) {
        while self.order.front().is_some_and(|&(_, until)| until <= now) {
            self.forget_oldest();
        }
    }

    /// All tombstones, and until when each is remembered.
    pub fn iter(&self) -> impl Iterator<Item = (ClaimId, Instant)> {
        self.expiries.iter().map(|(id, until)| (*id, *until))
    }

    /// The number of tombstones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expiries.len()
    }

    /// True when there are no tombstones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expiries.is_empty()
    }

    fn forget_oldest(&mut self) {
        if let Some((id, until)) = self.order.pop_front()
            && let Entry::Occupied(tombstone) = self.expiries.entry(id)
            && *tombstone.get() == until
        {
            tombstone.remove();
        }
    }
}

/// Folds an id, which is random already, into a hash.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            // Ids in tests are small numbers: an odd factor and a fold spread their bits over the whole hash.
            let product = (self.0 ^ u64::from_le_bytes(padded)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.0 = product ^ (product >> 32);
        }
    }

    fn write_usize(&mut self, _: usize) {
        // The length is the same for all ids.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn id(number: u128) -> ClaimId {
        ClaimId(number.to_be_bytes())
    }

    #[test]
    fn a_tombstone_lasts_until_its_time() {
        let mut tombstones = Tombstones::default();
        tombstones.add(id(1), at(0), at(10));
        tombstones.add(id(1), at(5), at(15));
        assert!(
            tombstones.contains(id(1), at(14))
                && !tombstones.contains(id(1), at(15))
                && !tombstones.contains(id(2), at(0))
        );
        tombstones.forget_expired(at(12));
        assert!(tombstones.contains(id(1), at(14)), "the second tombstone counts");
        tombstones.forget_expired(at(15));
        assert!(tombstones.is_empty() && tombstones.order.is_empty());
    }

    #[test]
    fn too_many_tombstones_drop_the_oldest() {
        let mut tombstones = Tombstones::default();
        for number in 0..=MAX_TOMBSTONES {
            tombstones.add(id(number as u128), at(0), at(10));
        }
        assert_eq!(tombstones.len(), MAX_TOMBSTONES);
        assert!(!tombstones.contains(id(0), at(1)) && tombstones.contains(id(1), at(1)));
    }
}

//! A queue of entries in the order of their due times.

use std::{cmp::Reverse, collections::BinaryHeap, mem};

use leasehold_core::Instant;

/// Entries in the order of their due times; entries with equal times are in the order in which they were added. When an
/// entry is removed or moved, its old key stays in the heap and is dropped when its time comes. Most sleeps end early,
/// and keeping an old key is cheaper than removing it.
pub(super) struct Agenda<T> {
    heap: BinaryHeap<Reverse<AgendaKey>>,
    slots: Vec<Slot<T>>,
    /// The indices of the empty slots.
    free: Vec<usize>,
    /// How many entries were added or moved so far.
    entries: u64,
}

/// The due time, the number of the entry, and its slot.
type AgendaKey = (Instant, u64, usize);

/// The place of one entry.
struct Slot<T> {
    /// The number of the entry in the slot. If the slot is empty, the number of the last entry that was in it.
    number: u64,
    /// The value of the entry; `None`: the slot is empty.
    due: Option<T>,
}

/// Identifies an entry until the entry is moved or removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    number: u64,
    slot: usize,
}

impl<T> Agenda<T> {
    /// An empty agenda.
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), entries: 0 }
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, at: Instant, due: T) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { number: 0, due: None });
            self.slots.len() - 1
        });
        self.slots[slot].due = Some(due);
        self.number(at, slot)
    }

    /// Moves the entry to `at` and returns its new key. Among entries with this time, it counts as added now. `None`:
    /// the entry is not in the agenda any more.
    pub(super) fn put_off(&mut self, key: Key, at: Instant) -> Option<Key> {
        self.get(key)?;
        Some(self.number(at, key.slot))
    }

    /// The value of an entry, unless the entry was removed or moved.
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.slot)?;
        slot.due.as_ref().filter(|_| slot.number == key.number)
    }

    /// Removes an entry, if it is still there.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        self.free.push(key.slot);
        self.slots[key.slot].due.take()
    }

    /// The due time of the first entry.
    pub(super) fn first(&mut self) -> Option<Instant> {
        while let Some(&Reverse((at, number, slot))) = self.heap.peek() {
            if self.get(Key { number, slot }).is_some() {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }

    /// Removes and returns the first entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.first()?;
        let Reverse((_, number, slot)) = self.heap.pop()?;
        self.remove(Key { number, slot })
    }

    /// Removes and returns all entries.
    pub(super) fn clear(&mut self) -> Vec<T> {
        let Self { slots, .. } = mem::replace(self, Self { entries: self.entries, ..Self::new() });
        slots.into_iter().filter_map(|slot| slot.due).collect()
    }

    /// Gives the entry in a slot a new number and this due time.
    fn number(&mut self, at: Instant, slot: usize) -> Key {
        self.entries += 1;
        let number = self.entries;
        self.slots[slot].number = number;
        self.heap.push(Reverse((at, number, slot)));
        Key { number, slot }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    /// Adds, moves, removes and pops at random: the agenda always answers as an ordered map would.
    #[test]
    fn it_behaves_as_an_ordered_map() {
        let mut rng = Rng::of(&[7]);
        let (mut agenda, mut map, mut entries) = (Agenda::new(), BTreeMap::new(), 0);
        let mut keys: Vec<(Key, (Instant, u64))> = Vec::new();
        for round in 0..20_000_u64 {
            // There are few distinct times, so that many entries share one.
            let at = Instant::from_nanos(rng.among(0..=30) + round / 100);
            let known = (!keys.is_empty()).then(|| rng.among(0..=keys.len() as u64 - 1) as usize);
            match (rng.among(0..=9), known) {
                (0..4, _) | (_, None) => {
                    entries += 1;
                    map.insert((at, entries), round);
                    keys.push((agenda.add(at, round), (at, entries)));
                }
                (4..6, Some(known)) => {
                    entries += 1;
                    let (key, place) = keys[known];
                    let moved = map.remove(&place).map(|round| map.insert((at, entries), round));
                    let again = agenda.put_off(key, at);
                    assert_eq!(again.is_some(), moved.is_some());
                    match again {
                        Some(again) => keys[known] = (again, (at, entries)),
                        None => entries -= 1,
                    }
                }
                (6..8, Some(known)) => {
                    let (key, place) = keys[known];
                    assert_eq!(agenda.remove(key), map.remove(&place));
                }
                _ => {
                    assert_eq!(agenda.first(), map.keys().next().map(|place| place.0));
                    assert_eq!(agenda.pop(), map.pop_first().map(|(_, round)| round));
                }
            }
        }
        let mut left = agenda.clear();
        left.sort_unstable();
        let mut expected: Vec<u64> = map.into_values().collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert_eq!(agenda.first(), None);
        let stale = keys.iter().find_map(|(key, _)| agenda.remove(*key));
        assert_eq!(stale, None);
    }
}

//! The claims of this client: the claim table of core, with the lease and the key of each claim.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use leasehold_core::{ClaimEntry, ClaimState, ClaimTable, Mode};

use crate::{keys::Dir, lock_of, session::LeaseSlot};

/// The state of a claim. What it owns is a key created at this revision, which is its token.
pub(crate) type State = ClaimState<i64, Blocker>;
/// One claim.
pub(crate) type Entry = ClaimEntry<i64, Blocker, Keyed>;

/// All claims of a client.
pub(crate) type Claims = ClaimTable<i64, Blocker, Keyed>;

/// The lease and the key of a claim.
pub(crate) struct Keyed {
    pub(crate) slot: LeaseSlot,
    pub(crate) key: Vec<u8>,
    /// The number in its key: it separates the keys of one lease.
    number: u32,
    keys: Keys,
}

/// The keys that the claims of a client use. Each belongs to one claim at a time.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<Mutex<HashSet<Vec<u8>>>>);

/// What a waiting claim waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// The deletion of this key. If `sole`, it was the only one ahead and the claim then holds; else the client asks
    /// what else is ahead.
    Last { key: Vec<u8>, sole: bool },
    /// The claims ahead, with their counts, together take at most `most` permits.
    Permits { before: Vec<(Vec<u8>, u32)>, most: u32 },
    /// Not known: the client has to ask.
    Unknown,
}

impl Blocker {
    /// Notes the deletion of this key. `Some(true)`: the claim holds now; `Some(false)`: the client has to ask; `None`:
    /// nothing changed for the claim.
    pub(crate) fn deleted(&mut self, key: &[u8]) -> Option<bool> {
        match self {
            Self::Last { key: last, sole } => (last == key).then_some(*sole),
            Self::Permits { before, most } => {
                before.retain(|(other, _)| other != key);
                fits(before, *most).then_some(true)
            }
            Self::Unknown => Some(false),
        }
    }
}

/// Whether all of these together take at most `most` permits.
pub(crate) fn fits(before: &[(Vec<u8>, u32)], most: u32) -> bool {
    before.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() <= u64::from(most)
}

impl Keys {
    /// Takes the first unused key whose number is at least `from`.
    fn take(&self, dir: &Dir, mode: Mode, lease: i64, from: u32) -> (Vec<u8>, u32) {
        let mut taken = lock_of(&self.0);
        let keys = (from..).map(|number| (dir.key(mode, lease, number), number));
        let mut free = keys.filter(|(key, _)| !taken.contains(key));
        let free = free.next().expect("there are more numbers than claims");
        taken.insert(free.0.clone());
        free
    }
}

impl Keyed {
    pub(crate) fn new(keys: &Keys, dir: &Dir, mode: Mode, slot: LeaseSlot) -> Self {
        let (key, number) = keys.take(dir, mode, slot.session().id, 0);
        Self { slot, key, number, keys: keys.clone() }
    }

    /// Takes another key for a claim whose key still exists on the server for another claim, such as a minimum hold.
    pub(crate) fn take_another_key(&mut self, dir: &Dir, mode: Mode) {
        let (key, number) = self.keys.take(dir, mode, self.slot.session().id, self.number + 1);
        lock_of(&self.keys.0).remove(&self.key);
        (self.key, self.number) = (key, number);
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        lock_of(&self.keys.0).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Instant, Name};

    use super::*;

    fn key(name: &str) -> Vec<u8> {
        name.as_bytes().to_vec()
    }

    #[test]
    fn a_claim_is_granted_when_its_only_blocker_is_deleted() {
        let mut sole = Blocker::Last { key: key("a"), sole: true };
        assert_eq!((sole.deleted(b"b"), sole.deleted(b"a")), (None, Some(true)));
        let mut more = Blocker::Last { key: key("a"), sole: false };
        assert_eq!(more.deleted(b"a"), Some(false));
    }

    fn slot(now: Instant) -> LeaseSlot {
        let sessions = crate::session::Sessions::default();
        let session = crate::session::Session::new(7, 30, Duration::from_secs(30), now);
        sessions.add(session).unwrap()
    }

    fn dir() -> Dir {
        Dir::of("/locks", &Name::new("a").unwrap())
    }

    #[test]
    fn a_key_belongs_to_one_claim_and_is_reused() {
        let keys = Keys::default();
        let new = || Keyed::new(&keys, &dir(), Mode::Exclusive, slot(Instant::from_nanos(0)));
        let (mut first, second) = (new(), new());
        assert_eq!((&*first.key, &*second.key), (b"/locks/a/7".as_slice(), b"/locks/a/7.1".as_slice()));
        first.take_another_key(&dir(), Mode::Exclusive);
        assert_eq!(first.key, b"/locks/a/7.2");
        drop(second);
        let (_third, fourth, fifth) = (new(), new(), new());
        assert_eq!((&*fourth.key, &*fifth.key), (b"/locks/a/7.1".as_slice(), b"/locks/a/7.3".as_slice()));
    }

    #[test]
    fn permits_are_counted_in_queue_order() {
        // Two of three permits are wanted, so those ahead may take one.
        let mut waits =
            Blocker::Permits { before: vec![(key("a"), 2), (key("b"), 1), (key("c"), 1)], most: 1 };
        assert_eq!(waits.deleted(b"x"), None);
        assert_eq!(waits.deleted(b"a"), None, "two are still ahead");
        assert_eq!(waits.deleted(b"b"), Some(true));
    }
}

//! The claims of this client: the claim table of core, with the lease and the key of each claim.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex},
};

use leasehold_core::{ClaimEntry, ClaimState, ClaimTable, Instant, Mode};

use crate::{keys::Dir, lock_mutex, session::LeaseSlot};

/// The state of a claim. The claim's own key is identified by its create revision, from which the tokens of the hold
/// are computed.
pub(crate) type State = ClaimState<i64, Blocker>;
/// One claim.
pub(crate) type Entry = ClaimEntry<i64, Blocker, KeyOnLease>;

/// All claims of a client.
pub(crate) type Claims = ClaimTable<i64, Blocker, KeyOnLease>;

/// The lease and the key of a claim.
pub(crate) struct KeyOnLease {
    /// The place of this key on its lease.
    pub(crate) lease_slot: LeaseSlot,
    pub(crate) key: Vec<u8>,
    /// The number at the end of the key, which distinguishes the keys of one lease; 0: the key has no number, and the
    /// lease id is its last part.
    number: u32,
    /// A deletion without conditions was sent and not answered: until when the server may still apply it.
    unanswered_deletion: Option<Instant>,
    keys_in_use: KeysInUse,
}

/// The keys that the claims of a client use now. Each key belongs to one claim at a time.
#[derive(Clone, Default)]
pub(crate) struct KeysInUse(Arc<Mutex<Keys>>);

#[derive(Default)]
struct Keys {
    in_use: HashSet<Vec<u8>>,
    /// Keys that no claim is allowed to use before an instant, because an unanswered deletion can delete them until
    /// then. They are in the order in which they were given back.
    blocked: VecDeque<(Instant, Vec<u8>)>,
}

/// What a waiting claim waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// Waits for the deletion of this key. If `sole`, no other key is ahead, and the claim holds after the deletion;
    /// otherwise the client asks after the deletion what else is ahead.
    Key { key: Vec<u8>, sole: bool },
    /// Waits until the claims ahead, each given by its key and its count, together take at most `max_permits`.
    Permits { ahead: Vec<(Vec<u8>, u32)>, max_permits: u32 },
    /// Not known: the client has to ask.
    Unknown,
}

impl Blocker {
    /// Records the deletion of this key. `Some(true)`: the claim holds now; `Some(false)`: the client has to ask;
    /// `None`: nothing changed for the claim.
    pub(crate) fn deleted(&mut self, key: &[u8]) -> Option<bool> {
        match self {
            Self::Key { key: blocking_key, sole } => (blocking_key == key).then_some(*sole),
            Self::Permits { ahead, max_permits } => {
                ahead.retain(|(other, _)| other != key);
                fits(ahead, *max_permits).then_some(true)
            }
            Self::Unknown => Some(false),
        }
    }
}

/// Whether these claims, each given by its key and its count, together take at most `max_permits`.
pub(crate) fn fits(ahead: &[(Vec<u8>, u32)], max_permits: u32) -> bool {
    ahead.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() <= u64::from(max_permits)
}

impl KeysInUse {
    /// Takes the first unused key whose number is at least `from`.
    fn take_unused(&self, dir: &Dir, mode: Mode, lease: i64, from: u32, now: Instant) -> (Vec<u8>, u32) {
        let mut keys = lock_mutex(&self.0);
        keys.free_blocked(now);
        let candidates = (from..).map(|number| (dir.key(mode, lease, number), number));
        let mut unused = candidates.filter(|(key, _)| !keys.in_use.contains(key));
        let (key, number) = unused.next().expect("there are more numbers than claims");
        keys.in_use.insert(key.clone());
        (key, number)
    }

    /// Gives a key back, at once or when an unanswered deletion can no longer delete it.
    fn give_back(&self, key: Vec<u8>, blocked_until: Option<Instant>) {
        let mut keys = lock_mutex(&self.0);
        match blocked_until {
            Some(until) => keys.blocked.push_back((until, key)),
            None => drop(keys.in_use.remove(&key)),
        }
    }
}

impl Keys {
    /// Frees the keys that no late deletion can delete any more.
    fn free_blocked(&mut self, now: Instant) {
        while self.blocked.front().is_some_and(|(until, _)| *until <= now)
            && let Some((_, key)) = self.blocked.pop_front()
        {
            self.in_use.remove(&key);
        }
    }
}

impl KeyOnLease {
    /// Takes an unused key for a claim on this lease.
    pub(crate) fn new(
        keys_in_use: &KeysInUse,
        dir: &Dir,
        mode: Mode,
        lease_slot: LeaseSlot,
        now: Instant,
    ) -> Self {
        let (key, number) = keys_in_use.take_unused(dir, mode, lease_slot.session().id, 0, now);
        Self { lease_slot, key, number, unanswered_deletion: None, keys_in_use: keys_in_use.clone() }
    }

    /// Takes another key for a claim whose key still exists on the server for another claim, such as a minimum hold.
    pub(crate) fn take_another_key(&mut self, dir: &Dir, mode: Mode, now: Instant) {
        let (key, number) =
            self.keys_in_use.take_unused(dir, mode, self.lease_slot.session().id, self.number + 1, now);
        self.number = number;
        self.keys_in_use.give_back(std::mem::replace(&mut self.key, key), self.unanswered_deletion.take());
    }

    /// Records that a deletion without conditions is about to be sent; the server can apply it until `until`. Returns
    /// false if an earlier such deletion is unanswered: then the caller is only allowed to delete the key on
    /// conditions.
    pub(crate) fn begin_deletion(&mut self, until: Instant) -> bool {
        let is_first = self.unanswered_deletion.is_none();
        self.unanswered_deletion.get_or_insert(until);
        is_first
    }

    /// Records the answer to the deletion.
    pub(crate) fn deletion_answered(&mut self) {
        self.unanswered_deletion = None;
    }
}

impl Drop for KeyOnLease {
    fn drop(&mut self) {
        self.keys_in_use.give_back(std::mem::take(&mut self.key), self.unanswered_deletion);
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
        let mut sole = Blocker::Key { key: key("a"), sole: true };
        assert_eq!((sole.deleted(b"b"), sole.deleted(b"a")), (None, Some(true)));
        let mut one_of_several = Blocker::Key { key: key("a"), sole: false };
        assert_eq!(one_of_several.deleted(b"a"), Some(false));
    }

    const NOW: Instant = Instant::from_nanos(0);

    fn lease_slot(now: Instant) -> LeaseSlot {
        let sessions = crate::session::Sessions::default();
        let session = crate::session::Session::new(7, 30, Duration::from_secs(30), now);
        sessions.add(session).unwrap()
    }

    fn dir() -> Dir {
        Dir::of("/locks", &Name::new("a").unwrap())
    }

    #[test]
    fn a_key_belongs_to_one_claim_and_is_reused() {
        let keys = KeysInUse::default();
        let new_key = || KeyOnLease::new(&keys, &dir(), Mode::Exclusive, lease_slot(NOW), NOW);
        let (mut first, second) = (new_key(), new_key());
        assert_eq!((&*first.key, &*second.key), (b"/locks/a/7".as_slice(), b"/locks/a/7.1".as_slice()));
        first.take_another_key(&dir(), Mode::Exclusive, NOW);
        assert_eq!(first.key, b"/locks/a/7.2");
        drop(second);
        let (_third, fourth, fifth) = (new_key(), new_key(), new_key());
        assert_eq!((&*fourth.key, &*fifth.key), (b"/locks/a/7.1".as_slice(), b"/locks/a/7.3".as_slice()));
    }

    #[test]
    fn a_key_is_not_used_again_while_an_unanswered_deletion_may_delete_it() {
        let keys = KeysInUse::default();
        let until = NOW.after(Duration::from_secs(15));
        let new_key = |now| KeyOnLease::new(&keys, &dir(), Mode::Exclusive, lease_slot(NOW), now);
        let mut answered = new_key(NOW);
        assert!(answered.begin_deletion(until));
        answered.deletion_answered();
        drop(answered);
        let mut unanswered = new_key(NOW);
        assert_eq!(unanswered.key, b"/locks/a/7");
        assert!(unanswered.begin_deletion(until));
        assert!(!unanswered.begin_deletion(until.after(Duration::from_secs(1))), "one at a time");
        drop(unanswered);
        let just_before = Instant::from_nanos(until.as_nanos() - 1);
        assert_eq!(new_key(just_before).key, b"/locks/a/7.1");
        assert_eq!(new_key(until).key, b"/locks/a/7");
    }

    #[test]
    fn permits_are_counted_in_queue_order() {
        // Two of three permits are wanted, so the claims ahead can hold one.
        let mut blocker =
            Blocker::Permits { ahead: vec![(key("a"), 2), (key("b"), 1), (key("c"), 1)], max_permits: 1 };
        assert_eq!(blocker.deleted(b"x"), None);
        assert_eq!(blocker.deleted(b"a"), None, "two are still ahead");
        assert_eq!(blocker.deleted(b"b"), Some(true));
    }
}

//! The claims of this client: the claim table of core, with the lease and the key of each claim.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use leasehold_core::{ClaimEntry, ClaimState, ClaimTable, Instant, Mode};

use crate::{
    keys::Dir,
    lock_mutex,
    session::{LeaseSlot, Session},
};

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
    /// The key by which the claim waits, and, unless there is a lock key, holds.
    pub(crate) key: Vec<u8>,
    /// With `layout=key`: the key by which the claim holds; `key` is its queue key.
    pub(crate) lock_key: Option<Vec<u8>>,
    /// With `layout=key`: the revision at which the queue key was created, if that is known.
    pub(crate) queue_revision: Option<i64>,
    /// The largest number of a memo that the claim has stored; 0: none.
    pub(crate) newest_memo: u64,
    /// With `layout=election`: the revision at which the claim last published a value in its key; `None`: never.
    pub(crate) published: Option<i64>,
    /// The value of the key, as last sent.
    pub(crate) record: Vec<u8>,
    /// The number at the end of the key, which distinguishes the keys of one lease; 0: the key has no number, and the
    /// lease id is its last part.
    number: u32,
    /// A deletion without conditions was sent and not answered: the server may apply it at any later time.
    has_unanswered_deletion: bool,
    keys_in_use: KeysInUse,
}

/// The two keys of a claim, with `layout=key`.
pub(crate) struct QueueAndLockKey {
    pub(crate) queue_key: Vec<u8>,
    /// The revision at which the queue key was created, if that is known.
    pub(crate) queue_revision: Option<i64>,
    pub(crate) lock_key: Vec<u8>,
}

/// The keys that the claims of a client use now. Each key belongs to one claim at a time.
#[derive(Clone, Default)]
pub(crate) struct KeysInUse(Arc<Mutex<Keys>>);

#[derive(Default)]
struct Keys {
    in_use: HashSet<Vec<u8>>,
    /// Keys that no claim is allowed to use any more, because an unanswered deletion can delete them, each with its
    /// lease. No other lease has these keys, so they are forgotten with the lease.
    blocked: Vec<(i64, Vec<u8>)>,
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

/// Records that the key of a claim exists, with an unknown position. A claim that is being ended meanwhile stays so.
pub(crate) fn queued(entry: &mut Entry, revision: i64, now: Instant) {
    if entry.state == State::Made {
        entry.waits(revision, Blocker::Unknown, now);
    }
}

impl KeysInUse {
    /// Takes the first unused key whose number is at least `from`.
    fn take_unused(&self, dir: &Dir, mode: Mode, lease: i64, from: u32) -> (Vec<u8>, u32) {
        let mut keys = lock_mutex(&self.0);
        let candidates = (from..).map(|number| (dir.key(mode, lease, number), number));
        let mut unused = candidates.filter(|(key, _)| !keys.in_use.contains(key));
        let (key, number) = unused.next().expect("there are more numbers than claims");
        keys.in_use.insert(key.clone());
        (key, number)
    }

    /// Gives a key back. If the key is blocked, no claim uses it any more while its lease lasts.
    fn give_back(&self, key: Vec<u8>, session: &Session, is_blocked: bool) {
        let mut keys = lock_mutex(&self.0);
        if is_blocked && !session.has_ended() {
            keys.blocked.push((session.id, key));
        } else {
            keys.in_use.remove(&key);
        }
    }

    /// Forgets the blocked keys of a lease that has ended.
    pub(crate) fn forget_lease(&self, lease: i64) {
        let Keys { in_use, blocked } = &mut *lock_mutex(&self.0);
        for (_, key) in blocked.extract_if(.., |(of_lease, _)| *of_lease == lease) {
            in_use.remove(&key);
        }
    }
}

impl KeyOnLease {
    /// Takes an unused key for a claim on this lease.
    pub(crate) fn new(keys_in_use: &KeysInUse, dir: &Dir, mode: Mode, lease_slot: LeaseSlot) -> Self {
        let (key, number) = keys_in_use.take_unused(dir, mode, lease_slot.session().id, 0);
        Self {
            lease_slot,
            key,
            lock_key: dir.lock_key(),
            queue_revision: None,
            newest_memo: 0,
            published: None,
            record: Vec::new(),
            number,
            has_unanswered_deletion: false,
            keys_in_use: keys_in_use.clone(),
        }
    }

    /// The key by which the claim holds.
    pub(crate) fn hold_key(&self) -> &[u8] {
        self.lock_key.as_deref().unwrap_or(&self.key)
    }

    /// With `layout=key`: the keys of the claim; `None` with the other layout.
    pub(crate) fn queue_and_lock_key(&self) -> Option<QueueAndLockKey> {
        let (queue_key, queue_revision) = (self.key.clone(), self.queue_revision);
        self.lock_key.clone().map(|lock_key| QueueAndLockKey { queue_key, queue_revision, lock_key })
    }

    /// Takes another key for a claim whose key still exists on the server for another claim, such as a minimum hold.
    pub(crate) fn take_another_key(&mut self, dir: &Dir, mode: Mode) {
        let session = self.lease_slot.session();
        let (key, number) = self.keys_in_use.take_unused(dir, mode, session.id, self.number + 1);
        self.number = number;
        let old_key = std::mem::replace(&mut self.key, key);
        self.keys_in_use.give_back(old_key, session, std::mem::take(&mut self.has_unanswered_deletion));
    }

    /// Records that a deletion without conditions is about to be sent. Returns false if an earlier such deletion is
    /// unanswered: then the caller is only allowed to delete the key on conditions.
    pub(crate) fn begin_deletion(&mut self) -> bool {
        !std::mem::replace(&mut self.has_unanswered_deletion, true)
    }

    /// Records that the deletion was answered, or was certainly not applied.
    pub(crate) fn deletion_settled(&mut self) {
        self.has_unanswered_deletion = false;
    }
}

impl Drop for KeyOnLease {
    fn drop(&mut self) {
        let key = std::mem::take(&mut self.key);
        self.keys_in_use.give_back(key, self.lease_slot.session(), self.has_unanswered_deletion);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimId, Name, WATCHED_CLAIM_LIFE};

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
        let new_key = || KeyOnLease::new(&keys, &dir(), Mode::Exclusive, lease_slot(NOW));
        let (mut first, second) = (new_key(), new_key());
        assert_eq!((&*first.key, &*second.key), (b"/locks/a/7".as_slice(), b"/locks/a/7.1".as_slice()));
        first.take_another_key(&dir(), Mode::Exclusive);
        assert_eq!(first.key, b"/locks/a/7.2");
        drop(second);
        let (_third, fourth, fifth) = (new_key(), new_key(), new_key());
        assert_eq!((&*fourth.key, &*fifth.key), (b"/locks/a/7.1".as_slice(), b"/locks/a/7.3".as_slice()));
    }

    #[test]
    fn a_key_is_not_used_again_while_an_unanswered_deletion_may_delete_it() {
        let keys = KeysInUse::default();
        let new_key = || KeyOnLease::new(&keys, &dir(), Mode::Exclusive, lease_slot(NOW));
        let mut settled = new_key();
        assert!(settled.begin_deletion());
        settled.deletion_settled();
        drop(settled);
        let mut unanswered = new_key();
        assert_eq!(unanswered.key, b"/locks/a/7");
        assert!(unanswered.begin_deletion());
        assert!(!unanswered.begin_deletion(), "one at a time");
        drop(unanswered);
        keys.forget_lease(8);
        assert_eq!(new_key().key, b"/locks/a/7.1");
        keys.forget_lease(7);
        assert_eq!(new_key().key, b"/locks/a/7", "the lease is over, and with it the key");
    }

    /// The reply to the request of a claim arrives after the time of the claim.
    #[test]
    fn a_claim_that_is_being_ended_does_not_wait_again() {
        let claim = Claim {
            id: ClaimId([1; 16]),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            claim_time: Duration::from_secs(30),
            may_queue: true,
            tokens: 1,
            owner: "test".into(),
            stops_on_term: false,
        };
        let new_claims = || {
            let mut claims = Claims::default();
            let key = KeyOnLease::new(&KeysInUse::default(), &dir(), Mode::Exclusive, lease_slot(NOW));
            claims.enter(&claim, key, NOW);
            claims
        };
        let mut in_time = new_claims();
        queued(in_time.get(claim.id).unwrap(), 5, NOW);
        assert_eq!(
            in_time.get(claim.id).unwrap().state,
            State::Waiting { own: 5, blocker: Blocker::Unknown }
        );
        let (mut late, end) = (new_claims(), NOW.after(WATCHED_CLAIM_LIFE));
        assert_eq!(late.take_overdue(end), [claim.id]);
        queued(late.get(claim.id).unwrap(), 5, end);
        assert_eq!(late.get(claim.id).unwrap().state, State::Ending { own: None, may_requeue: false });
        assert!(late.record_end(claim.id, end).is_some(), "the client forgets the claim");
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

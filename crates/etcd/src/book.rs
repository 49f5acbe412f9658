//! What this client knows of its claims: the table of core, with the key of each claim on its lease.

use std::{
    collections::HashSet,
    ops::{Deref, DerefMut},
};

use leasehold_core::{Claim, ClaimEntry, ClaimId, ClaimState, ClaimTable, Instant};

use crate::{keys::Dir, session::Seat};

/// Where a claim stands. What it has is a key created at this revision, which is its token.
pub(crate) type Place = ClaimState<i64, Before>;
/// One claim.
pub(crate) type Entry = ClaimEntry<i64, Before, Keyed>;

/// What is known of a claim besides.
pub(crate) struct Keyed {
    pub(crate) seat: Seat,
    pub(crate) key: Vec<u8>,
    /// Of its key, among those of its lease.
    number: u32,
}

/// What a claim in line waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// That this key is deleted; then it holds if that was the only one, else it is to ask what else came before.
    Last { key: Vec<u8>, sole: bool },
    /// That the claims before it, with their counts, leave it enough of the limit.
    Permits { before: Vec<(Vec<u8>, u32)>, most: u32 },
    /// It is to ask.
    Unknown,
}

impl Before {
    /// This key was deleted. `Some(true)`: the claim holds now; `Some(false)`: it is to ask; `None`: nothing for it.
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

/// All claims of a client.
#[derive(Default)]
pub(crate) struct Book {
    table: ClaimTable<i64, Before, Keyed>,
    /// The keys of the entries: each is of one claim at a time.
    keys: HashSet<Vec<u8>>,
}

impl Deref for Book {
    type Target = ClaimTable<i64, Before, Keyed>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl DerefMut for Book {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.table
    }
}

impl Book {
    /// Writes a claim down, on the lease of its seat; gives its key.
    pub(crate) fn enter(&mut self, claim: &Claim, seat: Seat, dir: &Dir, now: Instant) -> Vec<u8> {
        self.remove(claim.id);
        let (key, number) = self.free_key(dir, claim, seat.session().id, 0);
        self.keys.insert(key.clone());
        self.table.enter(claim, Keyed { seat, key: key.clone(), number }, now);
        key
    }

    /// Another key for a claim whose key is still that of somebody else: one that is kept taken.
    pub(crate) fn take_another_key(&mut self, claim: &Claim, dir: &Dir) {
        let Some(entry) = self.table.get(claim.id) else { return };
        let (lease, from) = (entry.data.seat.session().id, entry.data.number + 1);
        let next = self.free_key(dir, claim, lease, from);
        let Some(entry) = self.table.get(claim.id) else { return };
        self.keys.remove(&entry.data.key);
        self.keys.insert(next.0.clone());
        (entry.data.key, entry.data.number) = next;
    }

    fn free_key(&self, dir: &Dir, claim: &Claim, lease: i64, from: u32) -> (Vec<u8>, u32) {
        let keys = (from..).map(|number| (dir.key(claim.mode, lease, number), number));
        let mut free = keys.filter(|(key, _)| !self.keys.contains(key));
        free.next().expect("there are more numbers than claims")
    }

    pub(crate) fn remove(&mut self, id: ClaimId) -> Option<Entry> {
        let entry = self.table.remove(id)?;
        self.keys.remove(&entry.data.key);
        Some(entry)
    }

    /// The key of a claim that did not speak in time is deleted.
    pub(crate) fn ended(&mut self, id: ClaimId, now: Instant) -> Option<Entry> {
        let entry = self.table.ended(id, now)?;
        self.keys.remove(&entry.data.key);
        Some(entry)
    }

    /// Those that hold and are to be watched from now on: their keys, and the revisions at which these were created.
    pub(crate) fn unwatched(&mut self, now: Instant) -> Vec<(ClaimId, Vec<u8>, i64)> {
        let lasting = self.table.lasting(now);
        let watched = |id| {
            let entry = self.table.get(id)?;
            Some((id, entry.data.key.clone(), *entry.state.own()?))
        };
        lasting.into_iter().filter_map(watched).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Mode, Name};

    use super::*;

    fn key(name: &str) -> Vec<u8> {
        name.as_bytes().to_vec()
    }

    #[test]
    fn a_claim_holds_when_the_only_one_before_it_is_gone() {
        let mut sole = Before::Last { key: key("a"), sole: true };
        assert_eq!((sole.deleted(b"b"), sole.deleted(b"a")), (None, Some(true)));
        let mut more = Before::Last { key: key("a"), sole: false };
        assert_eq!(more.deleted(b"a"), Some(false));
    }

    fn claim(id: u8) -> Claim {
        Claim {
            id: ClaimId([id; 16]),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            claim_time: Duration::from_secs(2),
            may_queue: true,
            tokens: 1,
            owner: "me".into(),
            stops_on_term: false,
        }
    }

    fn seat(now: Instant) -> Seat {
        let sessions = crate::session::Sessions::default();
        let session = crate::session::Session::new(7, 30, Duration::from_secs(30), now);
        sessions.add(session).unwrap()
    }

    fn dir() -> Dir {
        Dir::of("/locks", &Name::new("a").unwrap())
    }

    #[test]
    fn a_key_is_of_one_claim_at_a_time_and_used_again() {
        let (now, mut book) = (Instant::from_nanos(0), Book::default());
        let first = book.enter(&claim(1), seat(now), &dir(), now);
        let second = book.enter(&claim(2), seat(now), &dir(), now);
        assert_eq!((&*first, &*second), (b"/locks/a/7".as_slice(), b"/locks/a/7.1".as_slice()));
        book.take_another_key(&claim(1), &dir());
        assert_eq!(book.get(ClaimId([1; 16])).unwrap().data.key, b"/locks/a/7.2");
        book.remove(ClaimId([2; 16]));
        assert_eq!(book.enter(&claim(3), seat(now), &dir(), now), b"/locks/a/7");
        assert_eq!(book.enter(&claim(4), seat(now), &dir(), now), second);
    }

    /// A hold is watched by its key, and its key is free again when it is ended.
    #[test]
    fn a_hold_that_lasts_is_watched_by_its_key_which_is_free_when_it_is_ended() {
        let (id, at) = (ClaimId([1; 16]), |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000));
        let mut book = Book::default();
        let first = book.enter(&claim(1), seat(at(0)), &dir(), at(0));
        book.hold(id, 5, true, (at(0), at(2)));
        assert_eq!(book.unwatched(at(1)), [(id, first.clone(), 5)]);
        assert_eq!(book.overdue(at(2)).len(), 1);
        assert_ne!(book.enter(&claim(2), seat(at(2)), &dir(), at(2)), first, "it may still be there");
        assert_eq!(book.ended(id, at(2)).map(|entry| entry.data.key), Some(first.clone()));
        assert_eq!(book.enter(&claim(3), seat(at(2)), &dir(), at(2)), first);
    }

    #[test]
    fn permits_are_counted_in_the_order_of_the_line() {
        // Two of three permits are wanted, so those before may have one.
        let mut waits =
            Before::Permits { before: vec![(key("a"), 2), (key("b"), 1), (key("c"), 1)], most: 1 };
        assert_eq!(waits.deleted(b"x"), None);
        assert_eq!(waits.deleted(b"a"), None, "two still come before");
        assert_eq!(waits.deleted(b"b"), Some(true));
    }
}

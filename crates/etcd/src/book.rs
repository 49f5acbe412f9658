//! What this client knows of its claims. The truth is on the server; what is here says which key to ask for, what a claim waits
//! for, and until when it may stand without a sign of life: a lease is shared, so a claim that nobody speaks for any more has
//! to be ended by its client.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use leasehold_core::{Claim, ClaimId, Instant, Mode, Name, lock_state::entry_life};

use crate::{keys::Dir, session::LeaseSlot};

/// A hold that lasts so long is watched: somebody may delete its key. Most are over before.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// One claim.
pub(crate) struct Entry {
    pub(crate) slot: LeaseSlot,
    pub(crate) name: Name,
    pub(crate) mode: Mode,
    pub(crate) key: Vec<u8>,
    /// Of its key, among those of its lease.
    number: u32,
    pub(crate) claim_time: Duration,
    /// How long a place in line lasts after its claim last spoke.
    pub(crate) life: Duration,
    pub(crate) until: Instant,
    /// When it is looked at whether its time is over.
    due: Instant,
    /// When its key begins to be watched, once it holds.
    watched_at: Instant,
    pub(crate) place: Place,
}

/// Where a claim stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is being made; what came of it is not known.
    Made,
    /// In line, by a key created at this revision.
    Waiting { revision: i64, before: Before },
    /// It holds, by a key created at this revision, which is its token.
    Held { revision: i64, spoken: bool },
    /// Its key, created at this revision if it is known, is being deleted, for nobody spoke for it in time.
    Ending { revision: Option<i64>, again: bool },
    /// Nothing will come of it; its release is to come.
    Gone,
    /// It was granted and did not speak in time. Nothing of it is on the server; it takes a new place when it speaks.
    Lapsed,
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

/// What the end of a claim that did not speak in time means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Its key is to be deleted.
    End(ClaimId),
    /// Nothing of it is on the server.
    Forget(ClaimId),
}

/// All claims of a client.
#[derive(Default)]
pub(crate) struct Book {
    entries: HashMap<ClaimId, Entry>,
    /// When each is to be looked at; it may have spoken since.
    due: BTreeSet<(Instant, ClaimId)>,
    /// When the key of each that holds begins to be watched.
    unwatched: BTreeSet<(Instant, ClaimId)>,
    /// The keys of the entries: each is of one claim at a time.
    keys: HashSet<Vec<u8>>,
}

impl Entry {
    fn new(claim: &Claim, slot: LeaseSlot, key: (Vec<u8>, u32), now: Instant) -> Self {
        let life = entry_life(claim.ttl);
        Self {
            slot,
            name: claim.name.clone(),
            mode: claim.mode,
            key: key.0,
            number: key.1,
            claim_time: claim.claim_time.min(claim.ttl),
            life,
            until: now.after(life),
            due: now.after(life),
            watched_at: Instant::NEVER,
            place: Place::Made,
        }
    }

    /// It spoke at `now`: it lives on, and takes a new place if it lost the old one.
    pub(crate) fn speaks(&mut self, now: Instant) {
        if self.place == Place::Lapsed {
            self.place = Place::Made;
        }
        if matches!(self.place, Place::Made | Place::Waiting { .. }) {
            self.until = self.until.max(now.after(self.life));
        }
    }

    /// It waits, and spoke at `now`.
    pub(crate) fn waits(&mut self, revision: i64, before: Before, now: Instant) {
        self.place = Place::Waiting { revision, before };
        self.speaks(now);
    }

    /// It holds until `until`, unless it speaks again.
    pub(crate) fn holds(&mut self, revision: i64, spoken: bool, until: Instant) {
        let was_held = matches!(self.place, Place::Held { .. });
        self.place = Place::Held { revision, spoken };
        self.until = if was_held { self.until.max(until) } else { until };
    }
}

impl Place {
    /// At which the key of the claim was created, where that is known.
    pub(crate) fn revision(&self) -> Option<i64> {
        match *self {
            Self::Waiting { revision, .. } | Self::Held { revision, .. } => Some(revision),
            Self::Ending { revision, .. } => revision,
            Self::Made | Self::Gone | Self::Lapsed => None,
        }
    }
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

impl Book {
    pub(crate) fn get(&mut self, id: ClaimId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// Writes a claim down, on the lease of its seat; gives its key.
    pub(crate) fn enter(&mut self, claim: &Claim, slot: LeaseSlot, dir: &Dir, now: Instant) -> Vec<u8> {
        self.remove(claim.id);
        let key = self.free_key(dir, claim, slot.session().id, 0);
        let entry = Entry::new(claim, slot, key, now);
        let key = entry.key.clone();
        self.keys.insert(key.clone());
        self.due.insert((entry.due, claim.id));
        self.entries.insert(claim.id, entry);
        key
    }

    /// Another key for a claim whose key is still that of somebody else: one that is kept taken.
    pub(crate) fn take_another_key(&mut self, claim: &Claim, dir: &Dir) {
        let Some(entry) = self.entries.get(&claim.id) else { return };
        let next = self.free_key(dir, claim, entry.slot.session().id, entry.number + 1);
        let Some(entry) = self.entries.get_mut(&claim.id) else { return };
        self.keys.remove(&entry.key);
        self.keys.insert(next.0.clone());
        (entry.key, entry.number) = next;
    }

    fn free_key(&self, dir: &Dir, claim: &Claim, lease: i64, from: u32) -> (Vec<u8>, u32) {
        let keys = (from..).map(|number| (dir.key(claim.mode, lease, number), number));
        let mut free = keys.filter(|(key, _)| !self.keys.contains(key));
        free.next().expect("there are more numbers than claims")
    }

    pub(crate) fn remove(&mut self, id: ClaimId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.due.remove(&(entry.due, id));
        self.unwatched.remove(&(entry.watched_at, id));
        self.keys.remove(&entry.key);
        Some(entry)
    }

    /// It holds since `now`: it may be due earlier than before, and is to be watched if it lasts.
    pub(crate) fn watch_for(&mut self, id: ClaimId, now: Instant) {
        self.watch_at(id, now.after(WATCHED_AFTER));
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.until < entry.due {
            self.due.remove(&(entry.due, id));
            entry.due = entry.until;
            self.due.insert((entry.due, id));
        }
    }

    fn watch_at(&mut self, id: ClaimId, at: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.unwatched.remove(&(entry.watched_at, id));
        entry.watched_at = at;
        self.unwatched.insert((at, id));
    }

    /// A new connection, on which nothing is watched yet.
    pub(crate) fn watch_anew(&mut self, now: Instant) {
        let holds =
            |(id, entry): (&ClaimId, &Entry)| matches!(entry.place, Place::Held { .. }).then_some(*id);
        let held: Vec<ClaimId> = self.entries.iter().filter_map(holds).collect();
        held.into_iter().for_each(|id| self.watch_at(id, now));
    }

    /// Those that hold and are to be watched from now on: their keys, and the revisions at which these were created.
    pub(crate) fn lasting(&mut self, now: Instant) -> Vec<(ClaimId, Vec<u8>, i64)> {
        let mut lasting = Vec::new();
        while let Some(&(at, id)) = self.unwatched.first()
            && at <= now
        {
            self.unwatched.pop_first();
            if let Some(entry) = self.entries.get(&id)
                && let Place::Held { revision, .. } = entry.place
            {
                lasting.push((id, entry.key.clone(), revision));
            }
        }
        lasting
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (ClaimId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// When the next one is to be looked at.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let first = [self.due.first(), self.unwatched.first()];
        first.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Those whose time is over. That they are ended is taken for granted.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        while let Some(&(at, id)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.until > now {
                entry.due = entry.until;
                self.due.insert((entry.due, id));
                continue;
            }
            let again = match entry.place {
                Place::Lapsed => {
                    overdue.push(Overdue::Forget(id));
                    continue;
                }
                Place::Ending { .. } => continue,
                Place::Held { spoken, .. } => !spoken,
                _ => false,
            };
            entry.place = Place::Ending { revision: entry.place.revision(), again };
            overdue.push(Overdue::End(id));
        }
        overdue
    }

    /// The key of a claim that did not speak in time is deleted.
    pub(crate) fn ended(&mut self, id: ClaimId, now: Instant) -> Option<Entry> {
        let entry = self.entries.get_mut(&id)?;
        match entry.place {
            Place::Ending { again: true, .. } => {
                entry.place = Place::Lapsed;
                entry.until = now.after(entry.life);
                entry.due = entry.until;
                self.due.insert((entry.due, id));
                None
            }
            Place::Ending { .. } => self.remove(id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn slot(now: Instant) -> LeaseSlot {
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
        let first = book.enter(&claim(1), slot(now), &dir(), now);
        let second = book.enter(&claim(2), slot(now), &dir(), now);
        assert_eq!((&*first, &*second), (b"/locks/a/7".as_slice(), b"/locks/a/7.1".as_slice()));
        book.take_another_key(&claim(1), &dir());
        assert_eq!(book.get(ClaimId([1; 16])).unwrap().key, b"/locks/a/7.2");
        book.remove(ClaimId([2; 16]));
        assert_eq!(book.enter(&claim(3), slot(now), &dir(), now), b"/locks/a/7");
        assert_eq!(book.enter(&claim(4), slot(now), &dir(), now), second);
    }

    #[test]
    fn a_grant_that_nobody_heard_of_lapses_and_its_claim_may_come_back() {
        let (id, at) = (ClaimId([1; 16]), |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000));
        let mut book = Book::default();
        book.enter(&claim(1), slot(at(0)), &dir(), at(0));
        book.get(id).unwrap().holds(5, false, at(2));
        book.watch_for(id, at(0));
        assert_eq!(book.next_due(), Some(at(0).after(WATCHED_AFTER)));
        assert_eq!(book.lasting(at(1)), [(id, key("/locks/a/7"), 5)]);
        assert_eq!(book.next_due(), Some(at(2)));
        assert_eq!(book.overdue(at(1)), []);
        assert_eq!(book.overdue(at(2)), [Overdue::End(id)]);
        assert_eq!(book.get(id).unwrap().place, Place::Ending { revision: Some(5), again: true });
        book.get(id).unwrap().speaks(at(3));
        assert_eq!(book.get(id).unwrap().place, Place::Ending { revision: Some(5), again: true }, "not yet");
        assert!(book.ended(id, at(3)).is_none());
        assert_eq!(book.get(id).unwrap().place, Place::Lapsed);
        book.get(id).unwrap().speaks(at(4));
        assert_eq!(book.get(id).unwrap().place, Place::Made);
        // One that did speak is over when its time is.
        book.get(id).unwrap().holds(9, true, at(40));
        book.watch_for(id, at(40));
        assert_eq!(book.overdue(at(100)), [Overdue::End(id)]);
        assert!(book.ended(id, at(100)).is_some());
        assert!(book.get(id).is_none() && book.next_due().is_none(), "nothing is left of it");
    }

    /// What is watched is so on one connection.
    #[test]
    fn what_is_held_is_watched_anew_on_each_connection() {
        let (id, at) = (ClaimId([1; 16]), |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000));
        let mut book = Book::default();
        for number in [1, 2] {
            book.enter(&claim(number), slot(at(0)), &dir(), at(0));
        }
        book.get(id).unwrap().holds(5, true, at(20));
        book.watch_for(id, at(0));
        assert_eq!(book.lasting(at(0)), [], "it may be over soon");
        assert_eq!(book.lasting(at(1)).len(), 1);
        assert_eq!(book.lasting(at(1)), [], "once for each connection");
        book.watch_anew(at(3));
        assert_eq!(book.lasting(at(3)).len(), 1, "the other one stands in line");
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

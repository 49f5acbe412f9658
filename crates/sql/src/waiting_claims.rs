//! The waiting claims of a client: handles their notifications, polls for their grants, and extends their queue
//! entries.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Claim, ClaimId, Grant, Loss, Mode, Name, Notification,
    lock_state::{EntryKind, MAX_ENTRY_LIFE, entry_life},
};

use crate::{
    client::{Client, bounded, lock_of},
    database::{Failed, QueueEntry, Timed},
    row::{micros_in, stand_of},
    slots,
    step::{Message, Outgoing},
};

/// How often a queue entry is extended in its life.
const SPOKEN: u32 = 4;

/// The waiting claims.
#[derive(Default)]
pub(crate) struct WaitingClaims {
    ahead: AtomicU32,
    /// How many claims, in any mode, wait ahead of the first of these.
    turn: AtomicU32,
    places: Mutex<HashMap<ClaimId, QueueEntry>>,
    /// Claims that may be entering the queue right now, and the notification that arrived before that was known.
    /// Locked before `places`.
    arriving: Mutex<HashMap<ClaimId, Option<Outgoing>>>,
    /// Claims that waited and were granted, until they are released: they are no fast-path holds.
    granted: Mutex<HashSet<ClaimId>>,
}

impl Client {
    /// Handles a notification to this client.
    pub(crate) fn hear(&self, told: &Outgoing) {
        match &told.what {
            Message::Granted { grant, since } => {
                let Some(place) = self.place_or_early(told) else { return };
                let since = self.not_after(*since);
                self.note_held(told.id);
                self.is_granted(told.id);
                // Any client may send a notification: the grant is valid for no longer than the claim itself asked
                // for.
                let ttl = grant.ttl.map(|ttl| ttl.min(place.claim_time));
                let grant = Grant { ttl, ..grant.clone() };
                self.mailbox.push(Notification::Granted { name: place.name, id: told.id, grant, since });
            }
            Message::Over { left } => {
                if let Some(place) = lock_of(&self.line.places).get_mut(&told.id) {
                    place.near = true;
                }
                self.over_in(Duration::from_micros(u64::try_from(*left).unwrap_or(0)));
            }
            Message::Broken { name } => {
                self.mailbox.push(Notification::Lost { name: name.clone(), id: told.id, loss: Loss::Broken });
            }
        }
    }

    /// Polls for what no notification reports; returns whether there was a grant.
    pub(crate) async fn listen(&self) -> Result<bool, Failed> {
        let called = bounded(self.database.called(self.id)).await?;
        let known = called.iter().filter(|told| !told.is_grant() || self.is_in_line(told.id));
        Ok(known.inspect(|told| self.hear(told)).filter(|told| told.is_grant()).count() > 0)
    }

    /// Reads the state of the waiting claims and extends their queue entries, also for a client that gets no
    /// notifications because it is `asleep`. Returns whether a claim does not wait any more; core then asks for it.
    pub(crate) async fn speak(&self, asleep: bool) -> Result<bool, Failed> {
        let mut places: Vec<QueueEntry> = lock_of(&self.line.places).values().cloned().collect();
        places.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        for place in places.iter_mut().filter(|_| asleep) {
            place.claim_time = slots::unheard(self.turn());
            place.life = place.life.max(micros_in(MAX_ENTRY_LIFE));
        }
        let (sent, mut called) = (self.now(), false);
        let spoken = bounded(self.database.speak(&places)).await?;
        for (place, stand) in places.iter().zip(spoken.stands) {
            let waits = stand.as_ref().is_some_and(|stand| stand_of(stand.it) == Some(EntryKind::Waiting));
            if let Some(Timed { now, .. }) = stand {
                self.learn(sent, now);
            }
            if !waits {
                called = true;
                self.mailbox.push(Notification::Recheck { name: place.name.clone(), id: place.id });
            }
        }
        // A claim that can share the name with all claims ahead of it is granted as soon as the first of them.
        let ahead = if places.iter().all(|place| place.alone) { spoken.ahead } else { 0 };
        self.line.ahead.store(ahead, Ordering::Relaxed);
        self.line.turn.store(spoken.ahead, Ordering::Relaxed);
        let near = |name: &Name| places.iter().any(|place| place.near && place.name == *name);
        self.lapsed(&spoken.lapses, near).await;
        Ok(called)
    }

    /// Ends expired holds of the names that claims wait for.
    pub(crate) async fn settle(&self) -> Result<(), Failed> {
        let mut names: Vec<Name> =
            lock_of(&self.line.places).values().map(|place| place.name.clone()).collect();
        names.sort();
        names.dedup();
        let lapses = bounded(self.database.lapses(&names)).await?;
        self.lapsed(&lapses, |_| true).await;
        Ok(())
    }

    /// Ends expired holds, and schedules the next check for the end of a hold of a `near` name.
    async fn lapsed(&self, lapses: &[(Name, i64)], near: impl Fn(&Name) -> bool) {
        let next = lapses.iter().filter(|(name, left)| *left > 0 && near(name)).map(|(_, left)| *left).min();
        if let Some(left) = next {
            self.over_in(Duration::from_micros(left.unsigned_abs()));
        }
        self.end_what_is_over(lapses.iter().filter(|(_, left)| *left <= 0).map(|(name, _)| name)).await;
    }

    /// How many claims wait ahead of the first waiting claim, counted only if they delay it.
    pub(crate) fn ahead(&self) -> u32 {
        self.line.ahead.load(Ordering::Relaxed)
    }

    /// How many claims wait ahead of the first waiting claim, as far as is known.
    pub(crate) fn turn(&self) -> u32 {
        self.line.turn.load(Ordering::Relaxed)
    }

    /// How often queue entries are extended: several times in their lives.
    pub(crate) fn speaks_every(&self) -> Duration {
        let lives = lock_of(&self.line.places).values().map(|place| place.life).min();
        Duration::from_micros(lives.unwrap_or(0).unsigned_abs()) / SPOKEN
    }

    /// How long a queue entry lasts: long where notifications arrive, because then it is rarely extended.
    pub(crate) fn place_life(&self, ttl: Duration) -> Duration {
        if self.database.tells() { MAX_ENTRY_LIFE } else { entry_life(ttl) }
    }

    pub(crate) fn waits(&self) -> bool {
        !lock_of(&self.line.places).is_empty()
    }

    pub(crate) fn is_in_line(&self, id: ClaimId) -> bool {
        lock_of(&self.line.places).contains_key(&id)
    }

    pub(crate) fn stands(&self, claim: &Claim, near: bool, ahead: Option<u32>) {
        let (life, alone) = (micros_in(self.place_life(claim.ttl)), claim.mode == Mode::Exclusive);
        let claim_time = claim.claim_time.min(claim.ttl);
        let place = QueueEntry { name: claim.name.clone(), id: claim.id, life, alone, near, claim_time };
        let mut places = lock_of(&self.line.places);
        places.insert(claim.id, place);
        let turn = ahead.filter(|_| places.len() == 1).unwrap_or(0);
        drop(places);
        self.line.ahead.store(0, Ordering::Relaxed);
        self.line.turn.store(turn, Ordering::Relaxed);
        self.note_queued();
    }

    /// The claim was granted; it may have waited before.
    pub(crate) fn is_granted(&self, id: ClaimId) {
        if lock_of(&self.line.places).remove(&id).is_some() {
            lock_of(&self.line.granted).insert(id);
        }
    }

    /// Forgets the claim; true if it had waited, granted or not.
    pub(crate) fn leaves(&self, id: ClaimId) -> bool {
        let granted = lock_of(&self.line.granted).remove(&id);
        lock_of(&self.line.places).remove(&id).is_some() || granted
    }

    /// The queue entry of the claim; if it has none yet, keeps the notification for it.
    fn place_or_early(&self, told: &Outgoing) -> Option<QueueEntry> {
        let mut arriving = lock_of(&self.line.arriving);
        let place = lock_of(&self.line.places).get(&told.id).cloned();
        if place.is_none()
            && let Some(early) = arriving.get_mut(&told.id)
        {
            *early = Some(told.clone());
        }
        place
    }
}

/// While this exists, a notification to a claim that has no queue entry yet is kept.
pub(crate) struct Arrival<'a>(&'a Client, ClaimId);

impl<'a> Arrival<'a> {
    pub(crate) fn new(client: &'a Client, id: ClaimId) -> Self {
        lock_of(&client.line.arriving).insert(id, None);
        Self(client, id)
    }

    pub(crate) fn told(&self) -> Option<Outgoing> {
        lock_of(&self.0.line.arriving).get_mut(&self.1).and_then(Option::take)
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        lock_of(&self.0.line.arriving).remove(&self.1);
    }
}

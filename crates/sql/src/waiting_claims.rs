//! The claims of a client that stand in line: what is told of them, what is looked for, and that they live on.

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

/// How often places are spoken for in their lives.
const SPOKEN: u32 = 4;

/// The claims in line.
#[derive(Default)]
pub(crate) struct WaitingClaims {
    ahead: AtomicU32,
    /// How many wait before the first of the claims, whatever they want.
    turn: AtomicU32,
    places: Mutex<HashMap<ClaimId, QueueEntry>>,
    /// Claims whose place may be made right now, and what was told of it before that was known. Locked before the places.
    arriving: Mutex<HashMap<ClaimId, Option<Outgoing>>>,
    /// Claims that stood in line and were granted, until they are released: they are no quick ones.
    granted: Mutex<HashSet<ClaimId>>,
}

impl Client {
    /// What was told to this client.
    pub(crate) fn hear(&self, told: &Outgoing) {
        match &told.what {
            Message::Granted { grant, since } => {
                let Some(place) = self.place_or_early(told) else { return };
                let since = self.not_after(*since);
                self.note_held(told.id);
                self.is_granted(told.id);
                // It is told by whoever may tell: believed for no longer than what the claim itself asked for.
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

    /// Hears what nobody tells; says whether there was anything.
    pub(crate) async fn listen(&self) -> Result<bool, Failed> {
        let called = bounded(self.database.called(self.id)).await?;
        let known = called.iter().filter(|told| !told.is_grant() || self.is_in_line(told.id));
        Ok(known.inspect(|told| self.hear(told)).filter(|told| told.is_grant()).count() > 0)
    }

    /// What the claims in line are by now, and that they live on: also those of a client that is told nothing, for it is `asleep`. Says
    /// whether one waits no more, and is asked for.
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
        // Who may be granted together with all before it is granted as soon as the first of them.
        let ahead = if places.iter().all(|place| place.alone) { spoken.ahead } else { 0 };
        self.line.ahead.store(ahead, Ordering::Relaxed);
        self.line.turn.store(spoken.ahead, Ordering::Relaxed);
        let near = |name: &Name| places.iter().any(|place| place.near && place.name == *name);
        self.lapsed(&spoken.lapses, near).await;
        Ok(called)
    }

    /// Ends holds of the names that are waited for, if they are over.
    pub(crate) async fn settle(&self) -> Result<(), Failed> {
        let mut names: Vec<Name> =
            lock_of(&self.line.places).values().map(|place| place.name.clone()).collect();
        names.sort();
        names.dedup();
        let lapses = bounded(self.database.lapses(&names)).await?;
        self.lapsed(&lapses, |_| true).await;
        Ok(())
    }

    /// It is looked again when the hold of a name that is `near` is over.
    async fn lapsed(&self, lapses: &[(Name, i64)], near: impl Fn(&Name) -> bool) {
        let next = lapses.iter().filter(|(name, left)| *left > 0 && near(name)).map(|(_, left)| *left).min();
        if let Some(left) = next {
            self.over_in(Duration::from_micros(left.unsigned_abs()));
        }
        self.end_what_is_over(lapses.iter().filter(|(_, left)| *left <= 0).map(|(name, _)| name)).await;
    }

    /// How many wait before the first of the claims in line, as far as it counts.
    pub(crate) fn ahead(&self) -> u32 {
        self.line.ahead.load(Ordering::Relaxed)
    }

    /// How many wait before the first of the claims in line, as far as is known.
    pub(crate) fn turn(&self) -> u32 {
        self.line.turn.load(Ordering::Relaxed)
    }

    /// How often places are spoken for: several times in their lives.
    pub(crate) fn speaks_every(&self) -> Duration {
        let lives = lock_of(&self.line.places).values().map(|place| place.life).min();
        Duration::from_micros(lives.unwrap_or(0).unsigned_abs()) / SPOKEN
    }

    /// How long a place in line lasts: who is told of its grants speaks for it seldom.
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

    /// The claim, which may have stood in line, was granted.
    pub(crate) fn is_granted(&self, id: ClaimId) {
        if lock_of(&self.line.places).remove(&id).is_some() {
            lock_of(&self.line.granted).insert(id);
        }
    }

    /// Forgets the claim; true if it stood in line, granted or not.
    pub(crate) fn leaves(&self, id: ClaimId) -> bool {
        let granted = lock_of(&self.line.granted).remove(&id);
        lock_of(&self.line.places).remove(&id).is_some() || granted
    }

    /// Where the claim stands; if it does not yet, what was told is kept for it.
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

/// While this lives, what is told of a claim that does not stand in line yet is kept.
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

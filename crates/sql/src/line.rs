//! The claims of a client that stand in line: what is told of them, what is looked for, and that they live on.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use leasehold_core::{Claim, ClaimId, Grant, Loss, Name, News, queue::Stand};

use crate::{
    client::{Client, bounded, lock_of},
    database::{Failed, Place, Timed},
    row::stand_of,
    step::{Tidings, Told},
};

/// The claims in line.
#[derive(Default)]
pub(crate) struct Line {
    places: Mutex<HashMap<ClaimId, Place>>,
    /// Claims whose place may be made right now, and what was told of it before that was known. Locked before the places.
    arriving: Mutex<HashMap<ClaimId, Option<Told>>>,
    /// Claims that stood in line and were granted, until they are released: they are no quick ones.
    granted: Mutex<HashSet<ClaimId>>,
}

impl Client {
    /// What was told to this client.
    pub(crate) fn hear(&self, told: &Told) {
        match &told.what {
            Tidings::Granted { grant, since } => {
                let Some(place) = self.place_or_early(told) else { return };
                let since = self.not_after(*since);
                self.is_granted(told.id);
                // It is told by whoever may tell: believed for no longer than what the claim itself asked for.
                let ttl = grant.ttl.map(|ttl| ttl.min(place.claim_time));
                let grant = Grant { ttl, ..grant.clone() };
                self.mailbox.push(News::Granted { name: place.name, id: told.id, grant, since });
            }
            Tidings::Over { left } => {
                self.over_in(Duration::from_micros(u64::try_from(*left).unwrap_or(0)));
            }
            Tidings::Broken { name } => {
                self.mailbox.push(News::Lost { name: name.clone(), id: told.id, loss: Loss::Broken });
            }
        }
    }

    /// Hears what nobody tells; says whether there was anything.
    pub(crate) async fn listen(&self) -> Result<bool, Failed> {
        let called = bounded(self.database.called(self.id)).await?;
        let known = called.iter().filter(|told| !told.is_grant() || self.is_in_line(told.id));
        Ok(known.inspect(|told| self.hear(told)).filter(|told| told.is_grant()).count() > 0)
    }

    /// What the claims in line are by now, and that they live on; says how many there are.
    pub(crate) async fn speak(&self) -> Result<usize, Failed> {
        let mut places: Vec<Place> = lock_of(&self.line.places).values().cloned().collect();
        places.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        let sent = self.now();
        let stands = bounded(self.database.speak(&places)).await?;
        for (place, stand) in places.iter().zip(stands) {
            let waits = stand.as_ref().is_some_and(|stand| stand_of(stand.it) == Some(Stand::Waiting));
            if let Some(Timed { now, .. }) = stand {
                self.learn(sent, now);
            }
            if !waits {
                self.mailbox.push(News::Ring { name: place.name.clone(), id: place.id });
            }
        }
        Ok(places.len())
    }

    /// Ends holds of the names that are waited for, if they are over; says when the next one will be.
    pub(crate) async fn settle(&self) -> Result<Option<Duration>, Failed> {
        let mut names: Vec<Name> =
            lock_of(&self.line.places).values().map(|place| place.name.clone()).collect();
        names.sort();
        names.dedup();
        let lapses = bounded(self.database.lapses(&names)).await?;
        let over = lapses.iter().filter(|(_, left)| *left <= 0).map(|(name, _)| name);
        self.end_what_is_over(over).await;
        let next = lapses.iter().filter_map(|(_, left)| u64::try_from(*left).ok()).min();
        Ok(next.map(Duration::from_micros))
    }

    pub(crate) fn waits(&self) -> bool {
        !lock_of(&self.line.places).is_empty()
    }

    pub(crate) fn is_in_line(&self, id: ClaimId) -> bool {
        lock_of(&self.line.places).contains_key(&id)
    }

    pub(crate) fn stands(&self, claim: &Claim) {
        let life = crate::row::micros_in(leasehold_core::queue::entry_life(claim.ttl));
        let claim_time = claim.claim_time.min(claim.ttl);
        let place = Place { name: claim.name.clone(), id: claim.id, life, claim_time };
        lock_of(&self.line.places).insert(claim.id, place);
        self.is_queued();
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
    fn place_or_early(&self, told: &Told) -> Option<Place> {
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

    pub(crate) fn told(&self) -> Option<Told> {
        lock_of(&self.0.line.arriving).get_mut(&self.1).and_then(Option::take)
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        lock_of(&self.0.line.arriving).remove(&self.1);
    }
}

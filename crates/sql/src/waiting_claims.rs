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
    client::{Client, lock_mutex, within_request_timeout},
    connection_slots,
    database::{Failed, QueueEntry, Timed},
    row::{duration_micros, kind_of},
    step::{ClientMessage, ClientNotification},
};

/// How many times a queue entry is extended within its life.
const REFRESHES_PER_LIFE: u32 = 4;

/// The waiting claims of one client.
#[derive(Default)]
pub(crate) struct WaitingClaims {
    /// How many claims delay the next grant to one of these claims. Counts as 0 if any of these claims is not
    /// exclusive, because such a claim can share its name with the claims ahead of it.
    delaying_claims: AtomicU32,
    /// How many claims, in any mode, are ahead of the claim among these that has the fewest claims ahead of it; 0 while
    /// this number is not known.
    position: AtomicU32,
    /// The queue entries, by claim.
    entries: Mutex<HashMap<ClaimId, QueueEntry>>,
    /// Claims that are possibly entering the queue right now, each with the notification, if any, that arrived before
    /// the answer to the claim. This mutex must be locked before `entries`.
    arriving: Mutex<HashMap<ClaimId, Option<ClientNotification>>>,
    /// Claims that waited and were granted, until they are released: they are no fast-path holds.
    granted: Mutex<HashSet<ClaimId>>,
}

impl Client {
    /// Handles a notification to this client.
    pub(crate) fn handle_notification(&self, notification: &ClientNotification) {
        match &notification.message {
            ClientMessage::Granted { grant, since } => {
                let Some(entry) = self.entry_or_defer(notification) else { return };
                let since = self.local_time_not_after(*since);
                self.note_held(notification.id);
                self.note_granted(notification.id);
                // Any client of the database can send a notification, with any ttl. So the grant counts as valid for no
                // longer than the claim itself asked for.
                let ttl = grant.ttl.map(|ttl| ttl.min(entry.claim_time));
                let grant = Grant { ttl, ..grant.clone() };
                self.mailbox.push(Notification::Granted {
                    name: entry.name,
                    id: notification.id,
                    grant,
                    since,
                });
            }
            ClientMessage::HoldEnds { remaining_micros } => {
                if let Some(entry) = lock_mutex(&self.waiting.entries).get_mut(&notification.id) {
                    entry.near_head = true;
                }
                self.schedule_check(Duration::from_micros(u64::try_from(*remaining_micros).unwrap_or(0)));
            }
            ClientMessage::Broken { name } => {
                self.mailbox.push(Notification::Lost {
                    name: name.clone(),
                    id: notification.id,
                    loss: Loss::Broken,
                });
            }
        }
    }

    /// Polls for the grants that no notification reports, and for the ends of minimum hold times; returns whether there
    /// was a grant.
    pub(crate) async fn poll_grants(&self) -> Result<bool, Failed> {
        let mut granted = false;
        for notification in within_request_timeout(self.database.poll_grants(self.id)).await? {
            if !notification.is_grant() || self.is_queued(notification.id) {
                self.handle_notification(&notification);
                granted |= notification.is_grant();
            }
        }
        Ok(granted)
    }

    /// Reads the state of the waiting claims and extends their queue entries. With `asleep`, gives entries and grants a
    /// longer time, because the client polls rarely. Returns whether a claim does not wait any more; core then asks for
    /// it.
    pub(crate) async fn refresh(&self, asleep: bool) -> Result<bool, Failed> {
        let mut entries: Vec<QueueEntry> = lock_mutex(&self.waiting.entries).values().cloned().collect();
        entries.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        for entry in entries.iter_mut().filter(|_| asleep) {
            entry.claim_time = connection_slots::sleeper_claim_time(self.position());
            entry.life_micros = entry.life_micros.max(duration_micros(MAX_ENTRY_LIFE));
        }
        let (sent, mut recheck) = (self.now(), false);
        let refreshed = within_request_timeout(self.database.refresh(&entries)).await?;
        for (entry, state) in entries.iter().zip(refreshed.states) {
            let waits = state.as_ref().is_some_and(|state| kind_of(state.value) == Some(EntryKind::Waiting));
            if let Some(Timed { now, .. }) = state {
                self.learn_time(sent, now);
            }
            if !waits {
                recheck = true;
                self.mailbox.push(Notification::Recheck { name: entry.name.clone(), id: entry.id });
            }
        }
        // A claim that can share the name with all claims ahead of it is granted at the same time as the head of the
        // queue: no claim delays it.
        let delaying_claims =
            if entries.iter().all(|entry| entry.exclusive) { refreshed.position } else { 0 };
        self.waiting.delaying_claims.store(delaying_claims, Ordering::Relaxed);
        self.waiting.position.store(refreshed.position, Ordering::Relaxed);
        let is_near_head = |name: &Name| entries.iter().any(|entry| entry.near_head && entry.name == *name);
        self.handle_expiries(&refreshed.expiries, is_near_head).await;
        Ok(recheck)
    }

    /// Ends expired holds of the names that claims wait for.
    pub(crate) async fn settle(&self) -> Result<(), Failed> {
        let mut names: Vec<Name> =
            lock_mutex(&self.waiting.entries).values().map(|entry| entry.name.clone()).collect();
        names.sort();
        names.dedup();
        let expiries = within_request_timeout(self.database.expiries(&names)).await?;
        self.handle_expiries(&expiries, |_| true).await;
        Ok(())
    }

    /// Ends expired holds; `expiries` has for each name the microseconds until the earliest end of its holds. Schedules
    /// a check at the earliest end that is still to come, of the names for which a claim near the head of the queue
    /// waits.
    async fn handle_expiries(&self, expiries: &[(Name, i64)], is_near_head: impl Fn(&Name) -> bool) {
        let next_end = expiries
            .iter()
            .filter(|(name, remaining)| *remaining > 0 && is_near_head(name))
            .map(|(_, remaining)| *remaining)
            .min();
        if let Some(remaining) = next_end {
            self.schedule_check(Duration::from_micros(remaining.unsigned_abs()));
        }
        self.end_expired(expiries.iter().filter(|(_, remaining)| *remaining <= 0).map(|(name, _)| name))
            .await;
    }

    /// How many claims delay the next grant to a waiting claim of this client. 0 if any waiting claim is not exclusive,
    /// because such a claim can share its name with the claims ahead of it.
    pub(crate) fn delaying_claims(&self) -> u32 {
        self.waiting.delaying_claims.load(Ordering::Relaxed)
    }

    /// How many claims are ahead of the waiting claim of this client that has the fewest claims ahead of it; 0 while
    /// this number is not known.
    pub(crate) fn position(&self) -> u32 {
        self.waiting.position.load(Ordering::Relaxed)
    }

    /// The time between two extensions of the queue entries: a part of the shortest life of an entry.
    pub(crate) fn refresh_interval(&self) -> Duration {
        let shortest_life = lock_mutex(&self.waiting.entries).values().map(|entry| entry.life_micros).min();
        Duration::from_micros(shortest_life.unwrap_or(0).unsigned_abs()) / REFRESHES_PER_LIFE
    }

    /// How long a queue entry lasts: long if the database sends notifications, because then the entry is rarely
    /// extended; otherwise a time that depends on `ttl`.
    pub(crate) fn queue_entry_life(&self, ttl: Duration) -> Duration {
        if self.database.notifies() { MAX_ENTRY_LIFE } else { entry_life(ttl) }
    }

    /// Whether any claim waits.
    pub(crate) fn has_waiting_claims(&self) -> bool {
        !lock_mutex(&self.waiting.entries).is_empty()
    }

    /// Whether this claim waits.
    pub(crate) fn is_queued(&self, id: ClaimId) -> bool {
        lock_mutex(&self.waiting.entries).contains_key(&id)
    }

    /// Records that a claim waits, with `ahead` claims ahead of it (if that is known), and whether it is `near_head`.
    pub(crate) fn note_waiting(&self, claim: &Claim, near_head: bool, ahead: Option<u32>) {
        let entry = QueueEntry {
            name: claim.name.clone(),
            id: claim.id,
            life_micros: duration_micros(self.queue_entry_life(claim.ttl)),
            exclusive: claim.mode == Mode::Exclusive,
            near_head,
            claim_time: claim.claim_time.min(claim.ttl),
        };
        let mut entries = lock_mutex(&self.waiting.entries);
        entries.insert(claim.id, entry);
        // With several waiting claims, the position is unknown until the next poll.
        let position = ahead.filter(|_| entries.len() == 1).unwrap_or(0);
        drop(entries);
        self.waiting.delaying_claims.store(0, Ordering::Relaxed);
        self.waiting.position.store(position, Ordering::Relaxed);
        self.note_queued();
    }

    /// Records that a claim was granted, and whether it had waited.
    pub(crate) fn note_granted(&self, id: ClaimId) {
        if lock_mutex(&self.waiting.entries).remove(&id).is_some() {
            lock_mutex(&self.waiting.granted).insert(id);
        }
    }

    /// Forgets the claim; true if it had waited, granted or not.
    pub(crate) fn forget(&self, id: ClaimId) -> bool {
        let granted = lock_mutex(&self.waiting.granted).remove(&id);
        lock_mutex(&self.waiting.entries).remove(&id).is_some() || granted
    }

    /// The queue entry of the notified claim. If the claim has no entry yet, stores the notification until it has one.
    fn entry_or_defer(&self, notification: &ClientNotification) -> Option<QueueEntry> {
        let mut arriving = lock_mutex(&self.waiting.arriving);
        let entry = lock_mutex(&self.waiting.entries).get(&notification.id).cloned();
        if entry.is_none()
            && let Some(early) = arriving.get_mut(&notification.id)
        {
            *early = Some(notification.clone());
        }
        entry
    }
}

/// The arrival of a claim in the queue: while this value exists, a notification to the claim is stored until the claim
/// has its queue entry.
pub(crate) struct Arrival<'a> {
    client: &'a Client,
    claim: ClaimId,
}

impl<'a> Arrival<'a> {
    /// Expects the claim to enter the queue.
    pub(crate) fn new(client: &'a Client, claim: ClaimId) -> Self {
        lock_mutex(&client.waiting.arriving).insert(claim, None);
        Self { client, claim }
    }

    /// Takes the notification that arrived meanwhile.
    pub(crate) fn take_deferred(&self) -> Option<ClientNotification> {
        lock_mutex(&self.client.waiting.arriving).get_mut(&self.claim).and_then(Option::take)
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        lock_mutex(&self.client.waiting.arriving).remove(&self.claim);
    }
}

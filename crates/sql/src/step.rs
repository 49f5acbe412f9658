//! One step of one name: a snapshot of its rows in, the changes out. Pure. The rules are those of [`LockState`], which
//! the memory engine runs, too; here a `LockState` is restored from rows for each step and saved again, under the lock
//! of the name's row.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use leasehold_core::{
    Answer, Broken, Claim, ClaimId, Grant, How, Instant, Lineage, Loss, Name, Release, Token, Upgraded, View,
    lock_state::{
        Entry, EntryKind, LastEnd, LockState, MAX_HOLDERS, MAX_TOKENS, Refusal, Saved, StepContext,
        Tombstones,
    },
};

use crate::{
    database::{Failed, bad_value},
    row::{
        ClaimRow, ClientId, LockRow, duration_micros, instant, kind_code, micros, previous_code, previous_of,
    },
};

/// For this time after a request was sent, the server may still execute it.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(15);

/// A name whose newest token is larger than this is not granted any more. One step creates fewer tokens than there are
/// larger numbers, so no token overflows.
const LAST_TOKEN: i64 = i64::MAX - MAX_TOKENS as i64 * MAX_HOLDERS as i64;

/// The rows of one name, and the time of the database when they were read.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The time of the database, in microseconds.
    pub(crate) now: i64,
    /// No token below this one is created.
    pub(crate) floor: i64,
    pub(crate) lineage: Lineage,
    /// The row of the name.
    pub(crate) lock: LockRow,
    /// The claim rows of the name.
    pub(crate) claims: Vec<ClaimRow>,
}

/// A verb to apply to a name.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Claim {
        claim: Claim,
        how: How,
        client: ClientId,
        /// How long the queue entry of the claim lasts.
        entry_life: Duration,
    },
    Renew {
        id: ClaimId,
        token: Token,
        ttl: Duration,
    },
    /// Makes an exclusive hold shared.
    Downgrade {
        id: ClaimId,
        token: Token,
        ttl: Duration,
    },
    /// Replaces a shared hold by an exclusive one of `claim`.
    Upgrade {
        id: ClaimId,
        token: Token,
        claim: Claim,
        client: ClientId,
    },
    /// Releases a claim. `late_request_possible`: a request of the claim may still arrive, so a tombstone is left.
    Release {
        release: Release,
        late_request_possible: bool,
    },
    Break {
        name: Name,
        token: u64,
        force: bool,
    },
    /// Ends what has expired, and grants to the next waiter.
    Settle,
}

impl Verb {
    /// The claim that this verb grants or queues, if any, and how long its queue entry lasts.
    fn claim_to_queue(&self) -> Option<(ClaimId, Duration)> {
        match self {
            Self::Claim { claim, entry_life, .. } => Some((claim.id, *entry_life)),
            _ => None,
        }
    }
}

/// The reply to a verb.
#[derive(Debug)]
pub(crate) enum Reply {
    Claim(Result<Answer, Refusal>),
    Renewed(Result<(), Loss>),
    Upgraded(Upgraded),
    /// Whether the release ended a hold with the token that the release names.
    Released(bool),
    Broken(Broken),
    Settled,
}

/// A notification to the client of a claim.
#[derive(Clone, Debug)]
pub(crate) struct ClientNotification {
    pub(crate) client: ClientId,
    pub(crate) id: ClaimId,
    pub(crate) message: ClientMessage,
}

impl ClientNotification {
    /// Whether the notification reports a grant.
    pub(crate) fn is_grant(&self) -> bool {
        matches!(self.message, ClientMessage::Granted { .. })
    }
}

/// The content of a notification.
#[derive(Clone, Debug)]
pub(crate) enum ClientMessage {
    /// The claim was granted at this time of the database.
    Granted { grant: Grant, since: i64 },
    /// An operator broke the hold.
    Broken { name: Name },
    /// The earliest end of the holds that a claim waits for comes in this many microseconds, if no hold is extended.
    HoldEnds { remaining_micros: i64 },
}

/// The changes of one step: the rows to write and to delete, and the clients to notify.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) reply: Reply,
    /// The new row of the name, if it changed.
    pub(crate) lock: Option<LockRow>,
    /// New or changed rows.
    pub(crate) changed_claims: Vec<ClaimRow>,
    /// The claims whose rows are deleted.
    pub(crate) deleted_claims: Vec<ClaimId>,
    pub(crate) notifications: Vec<ClientNotification>,
}

impl Changes {
    /// No change of a name.
    pub(crate) const fn none() -> Self {
        Self {
            reply: Reply::Settled,
            lock: None,
            changed_claims: Vec::new(),
            deleted_claims: Vec::new(),
            notifications: Vec::new(),
        }
    }

    /// Whether anything has to be written.
    pub(crate) fn has_row_changes(&self) -> bool {
        self.lock.is_some() || !self.changed_claims.is_empty() || !self.deleted_claims.is_empty()
    }
}

impl Snapshot {
    /// Applies a verb.
    ///
    /// # Errors
    /// If the token numbers might run out: no grant is better than two grants with one token.
    pub(crate) fn apply(&self, verb: &Verb) -> Result<Changes, Failed> {
        if self.lock.token.max(self.floor) > LAST_TOKEN {
            return Err(bad_value("token", "it is close to the largest number"));
        }
        Ok(self.step(verb))
    }

    /// Restores the lock state from the rows, applies the verb, and computes the changes.
    fn step(&self, verb: &Verb) -> Changes {
        let now = instant(self.now);
        let mut tombstones = self.tombstones(now);
        let mut lock_state = self.lock_state();
        let mut newest_token = self.lock.token;
        let lineage = self.lineage;
        // R10: the token counter also follows the clock, so that it stays ahead of all granted tokens even after an
        // older state of the table is restored.
        let mut mint = |tokens: u32| {
            let first_token = newest_token.saturating_add(1).max(self.floor);
            newest_token = first_token.saturating_add(i64::from(tokens) - 1);
            Token { lineage, number: first_token.unsigned_abs() }
        };
        let tombstone_life = match verb {
            Verb::Release { late_request_possible: true, .. } | Verb::Break { .. } | Verb::Upgrade { .. } => {
                REQUEST_LIFE
            }
            // After other verbs no tombstone is needed: either every request of the claim was answered, or its client
            // sends a release, which leaves a tombstone.
            _ => Duration::ZERO,
        };
        let mut step = StepContext::new(now, tombstone_life, &mut tombstones, &mut mint);
        let mut notifications = Vec::new();
        // An expired hold does not tell when the name will be free next.
        let known_remaining = lock_state.frees_in(now).filter(|remaining| !remaining.is_zero());
        let informed_watchers = watchers(&lock_state);
        // The claim of this verb gets that time in its answer, not by a notification.
        let claim_to_queue = verb.claim_to_queue();
        let reply = match verb {
            Verb::Claim { claim, how, client, .. } => {
                Reply::Claim(lock_state.claim(claim, *how, client, &mut step))
            }
            Verb::Renew { id, token, ttl } => Reply::Renewed(lock_state.renew(*id, *token, *ttl, &mut step)),
            Verb::Downgrade { id, token, ttl } => {
                Reply::Renewed(lock_state.downgrade(*id, *token, *ttl, &mut step))
            }
            Verb::Upgrade { id, token, claim, client } => {
                Reply::Upgraded(lock_state.upgrade(*id, *token, claim, client, &mut step))
            }
            Verb::Release { release, .. } => Reply::Released(lock_state.release(release, &mut step)),
            Verb::Settle => {
                lock_state.settle(&mut step);
                Reply::Settled
            }
            Verb::Break { name, token, force } => {
                let broken = lock_state.break_hold(*token, *force, &mut step);
                let (id, client) = broken.as_ref().map_or((None, None), |hold| (Some(hold.id), hold.client));
                if let (Some(id), Some(client)) = (id, client) {
                    let message = ClientMessage::Broken { name: name.clone() };
                    notifications.push(ClientNotification { client, id, message });
                }
                Reply::Broken(if broken.is_some() { Broken::Done } else { Broken::NotHeld })
            }
        };
        let pushed_grants = std::mem::take(&mut step.pushed);
        notifications.extend(pushed_grants.into_iter().map(|pushed| ClientNotification {
            client: pushed.client,
            id: pushed.id,
            message: ClientMessage::Granted { grant: pushed.grant, since: self.now },
        }));
        // Reports the time until the next end of a hold to the claims near the head of the queue: to all of them if
        // that time is now shorter than before this step, else only to the claims that were not near the head before.
        if let Some(remaining) = lock_state.frees_in(now) {
            let ends_sooner = known_remaining.is_none_or(|known| remaining < known);
            let remaining_micros = duration_micros(remaining);
            let uninformed_watchers = watchers(&lock_state).into_iter().filter(|watcher| {
                claim_to_queue.is_none_or(|(id, _)| id != watcher.0)
                    && (ends_sooner || !informed_watchers.contains(watcher))
            });
            let to_notification = |(id, client)| ClientNotification {
                client,
                id,
                message: ClientMessage::HoldEnds { remaining_micros },
            };
            notifications.extend(uninformed_watchers.map(to_notification));
        }
        let mut saved_state = lock_state.save();
        let is_queued = |entry: &&mut Entry<_>| matches!(entry.kind, EntryKind::Waiting | EntryKind::Silent);
        if let Some((id, life)) = claim_to_queue
            && let Some(queue_entry) =
                saved_state.entries.iter_mut().filter(is_queued).find(|entry| entry.id == id)
        {
            queue_entry.expires = queue_entry.expires.max(now.after(life));
        }
        self.changes_to(reply, notifications, saved_state, newest_token, &tombstones)
    }

    /// Whether this claim holds the name exclusively now, unbroken; with `token`, whether its hold has this first
    /// token.
    pub(crate) fn is_held_by(&self, id: ClaimId, token: Option<Token>) -> bool {
        let mut lock_state = self.lock_state();
        let mut tombstones = Tombstones::default();
        // What this grants is not stored. Its tokens only have to be larger than all stored ones.
        let mut next = i64::MAX.unsigned_abs() + 1;
        let mut mint = |tokens: u32| {
            let number = next;
            next += u64::from(tokens);
            Token { lineage: self.lineage, number }
        };
        let mut step = StepContext::new(instant(self.now), Duration::ZERO, &mut tombstones, &mut mint);
        lock_state.settle(&mut step);
        lock_state.is_held_by(id, token)
    }

    /// The name as operators see it.
    pub(crate) fn view(&self, name: &Name) -> View {
        self.lock_state().view(name, name.as_str(), instant(self.now))
    }

    /// The lock state that the rows describe.
    fn lock_state(&self) -> LockState<ClientId> {
        let newest = u64::try_from(self.lock.token).unwrap_or(0);
        let LockRow { ended, ended_upto, ended_until, .. } = self.lock;
        let last_end = LastEnd {
            previous: previous_of(ended),
            newest_token: u64::try_from(ended_upto).unwrap_or(0),
            remembered_until: instant(ended_until),
        };
        let mut rows: Vec<&ClaimRow> = self.lock.holder.iter().chain(&self.claims).collect();
        rows.sort_by_key(|row| row.place);
        let entries = rows.into_iter().filter_map(ClaimRow::entry).collect();
        LockState::restore(Saved { newest_token: newest, last_end, entries }, self.lineage)
    }

    /// The tombstones among the claim rows.
    fn tombstones(&self, now: Instant) -> Tombstones {
        let mut tombstones = Tombstones::default();
        for row in &self.claims {
            if let Some(until) = row.tombstone_until() {
                tombstones.add(row.id, now, instant(until));
            }
        }
        tombstones
    }

    /// The changes that make the rows match the lock state after the step.
    fn changes_to(
        &self,
        reply: Reply,
        notifications: Vec<ClientNotification>,
        mut saved_state: Saved<ClientId>,
        newest_token: i64,
        tombstones: &Tombstones,
    ) -> Changes {
        // Clients that poll find names in their minimum hold time in the same way as grants: by the client in the row.
        // So the row of a minimum hold gets the client of the head of the queue.
        let head_client = saved_state
            .entries
            .iter()
            .find(|entry| entry.kind == EntryKind::Waiting)
            .map(|entry| entry.client);
        for entry in saved_state.entries.iter_mut().filter(|entry| entry.kind == EntryKind::MinHold) {
            entry.client = head_client.unwrap_or(entry.client);
        }
        let rows_by_id: HashMap<ClaimId, &ClaimRow> = self.claims.iter().map(|row| (row.id, row)).collect();
        let mut largest_place = self.claims.iter().map(|row| row.place).max().unwrap_or(0);
        let mut lock = LockRow {
            token: newest_token,
            holder: None,
            claims: 0,
            ended: previous_code(saved_state.last_end.previous),
            ended_upto: i64::try_from(saved_state.last_end.newest_token).unwrap_or(i64::MAX),
            ended_until: micros(saved_state.last_end.remembered_until),
        };
        let mut rows: Vec<ClaimRow> = Vec::with_capacity(saved_state.entries.len());
        // The place of the previous waiting entry.
        let mut last_waiting_place = 0;
        for entry in &saved_state.entries {
            if self.is_fast_path(entry) {
                lock.holder = Some(ClaimRow::of(entry, 0));
                continue;
            }
            let place = rows_by_id.get(&entry.id).map_or(0, |row| row.place);
            let place = match entry.kind {
                // A claim that returned to the queue goes to its end.
                EntryKind::Waiting if place <= last_waiting_place => {
                    largest_place = largest_place.saturating_add(1);
                    largest_place
                }
                _ => place,
            };
            if entry.kind == EntryKind::Waiting {
                last_waiting_place = place;
            }
            rows.push(ClaimRow::of(entry, place));
        }
        for (id, until) in tombstones.iter() {
            match rows.iter_mut().find(|row| row.id == id) {
                Some(row) => row.place_expires = micros(until),
                None => rows.push(ClaimRow::tombstone(id, until)),
            }
        }
        lock.claims = i32::try_from(rows.len()).unwrap_or(i32::MAX);
        let kept_ids: HashSet<ClaimId> = rows.iter().map(|row| row.id).collect();
        let deleted_claims =
            self.claims.iter().map(|row| row.id).filter(|id| !kept_ids.contains(id)).collect();
        let changed_claims = rows.into_iter().filter(|row| rows_by_id.get(&row.id) != Some(&row)).collect();
        Changes {
            reply,
            lock: Some(lock).filter(|lock| *lock != self.lock),
            changed_claims,
            deleted_claims,
            notifications,
        }
    }

    /// Whether the claim is stored in the row of its name and not in a claim row. This is true of a confirmed exclusive
    /// hold that is in the row of its name already, or that has no claim row.
    fn is_fast_path(&self, entry: &Entry<ClientId>) -> bool {
        let in_lock_row = self.lock.holder.as_ref().is_some_and(|row| row.id == entry.id);
        let has_claim_row = self.claims.iter().any(|row| row.id == entry.id);
        let (mode, ..) = crate::row::mode_codes(entry.mode);
        // As a mode, code 0 means exclusive; as a kind, it means a confirmed hold.
        mode == 0 && kind_code(entry.kind) == 0 && (in_lock_row || !has_claim_row)
    }
}

/// The claims near the head of the queue. When a hold ahead should end, their clients check whether it has ended.
fn watchers(lock_state: &LockState<ClientId>) -> Vec<(ClaimId, ClientId)> {
    lock_state.watchers().map(|(id, client)| (id, *client)).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::Lineage;

    use super::*;
    use crate::row::{LockRow, kind_code};

    /// A look mints tokens that are larger than all stored ones, and stay numbers.
    #[test]
    fn a_look_grants_a_waiting_claim_behind_a_lapsed_hold() {
        let [lapsed, waiting] = [1, 2].map(|number| ClaimId([number; 16]));
        let row = |id, kind, place, expires| ClaimRow {
            stand: kind_code(kind),
            place,
            token: 3,
            tokens: 65,
            expires,
            claim_time: 2_000_000,
            place_expires: 9_000_000,
            ..ClaimRow::tombstone(id, instant(0))
        };
        let lock = LockRow {
            token: 3,
            holder: Some(row(lapsed, EntryKind::Held, 0, 1_000_000)),
            ..LockRow::default()
        };
        let claims = vec![row(waiting, EntryKind::Waiting, 1, 9_000_000)];
        let snapshot = Snapshot { now: 5_000_000, floor: 5_000_000, lineage: Lineage::new(7), lock, claims };
        assert!(!snapshot.is_held_by(lapsed, None));
        assert!(snapshot.is_held_by(waiting, None));
    }
}

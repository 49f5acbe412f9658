//! One step of one name: a snapshot of its rows in, the changes out. Pure. The rules are those of [`LockState`],
//! which the memory engine runs, too; here it is restored from rows for each step and saved again, under the lock of
//! the name's row.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use leasehold_core::{
    Answer, Broken, Claim, ClaimId, Grant, How, Instant, Lineage, Loss, Name, Release, Token, View,
    lock_state::{
        Entry, EntryKind, LastEnd, LockState, MAX_HOLDERS, MAX_TOKENS, Refusal, Saved, StepContext,
        Tombstones,
    },
};

use crate::{
    database::{Failed, bad_value},
    row::{ClaimRow, ClientId, LockRow, instant, kind_code, micros, micros_in, previous_code, previous_of},
};

/// The longest time after sending for which the server may still execute a request.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(15);

/// The largest token up to which names are granted. One step creates fewer tokens than there are numbers above this
/// one.
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
        /// How long its queue entry lasts.
        entry_life: Duration,
    },
    Renew {
        id: ClaimId,
        token: Token,
        ttl: Duration,
    },
    /// Releases a claim. `doubtful`: a request of the claim may still arrive, so a tombstone is left.
    Release {
        release: Release,
        doubtful: bool,
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
    fn asking(&self) -> Option<(ClaimId, Duration)> {
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
    /// Whether a hold with the given token was released.
    Released(bool),
    Broken(Broken),
    Settled,
}

/// A notification to the client of a claim.
#[derive(Clone, Debug)]
pub(crate) struct PeerNotification {
    pub(crate) client: ClientId,
    pub(crate) id: ClaimId,
    pub(crate) message: PeerMessage,
}

impl PeerNotification {
    /// Whether the notification reports a grant.
    pub(crate) fn is_grant(&self) -> bool {
        matches!(self.message, PeerMessage::Granted { .. })
    }
}

/// The content of a notification.
#[derive(Clone, Debug)]
pub(crate) enum PeerMessage {
    /// The claim was granted at this time of the database.
    Granted { grant: Grant, since: i64 },
    /// An operator broke the hold.
    Broken { name: Name },
    /// The first of the holds that a claim waits for ends in this many microseconds, unless it is extended.
    HoldEnds { left: i64 },
}

/// What to write, and which clients to notify.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) reply: Reply,
    /// The new row of the name, if it changed.
    pub(crate) lock: Option<LockRow>,
    /// New or changed rows.
    pub(crate) put: Vec<ClaimRow>,
    /// The claims whose rows are deleted.
    pub(crate) drop: Vec<ClaimId>,
    pub(crate) notifications: Vec<PeerNotification>,
}

impl Changes {
    /// Whether anything has to be written.
    pub(crate) fn changes(&self) -> bool {
        self.lock.is_some() || !self.put.is_empty() || !self.drop.is_empty()
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
        let mut queue = self.queue();
        let mut newest = self.lock.token;
        let lineage = self.lineage;
        // R10: the counter also follows the clock, so that it stays ahead after an older state of the table is
        // restored.
        let mut mint = |tokens: u32| {
            let first = newest.saturating_add(1).max(self.floor);
            newest = first.saturating_add(i64::from(tokens) - 1);
            Token { lineage, number: first.unsigned_abs() }
        };
        let tombstone_life = match verb {
            Verb::Release { doubtful: true, .. } | Verb::Break { .. } => REQUEST_LIFE,
            // Every request of the claim was answered; otherwise its client releases it.
            _ => Duration::ZERO,
        };
        let mut step = StepContext::new(now, tombstone_life, &mut tombstones, &mut mint);
        let mut notifications = Vec::new();
        // An expired hold does not tell when the name will be free next.
        let (informed, known_left) = (watchers(&queue), queue.frees_in(now).filter(|left| !left.is_zero()));
        // The claim of this verb gets that time in its answer, not by a notification.
        let asking = verb.asking();
        let reply = match verb {
            Verb::Claim { claim, how, client, .. } => {
                Reply::Claim(queue.claim(claim, *how, client, &mut step))
            }
            Verb::Renew { id, token, ttl } => Reply::Renewed(queue.renew(*id, *token, *ttl, &mut step)),
            Verb::Release { release, .. } => Reply::Released(queue.release(release, &mut step)),
            Verb::Settle => {
                queue.settle(&mut step);
                Reply::Settled
            }
            Verb::Break { name, token, force } => {
                let broken = queue.break_hold(*token, *force, &mut step);
                let (id, client) = broken.as_ref().map_or((None, None), |hold| (Some(hold.id), hold.client));
                if let (Some(id), Some(client)) = (id, client) {
                    let message = PeerMessage::Broken { name: name.clone() };
                    notifications.push(PeerNotification { client, id, message });
                }
                Reply::Broken(if broken.is_some() { Broken::Done } else { Broken::NotHeld })
            }
        };
        let pushed = std::mem::take(&mut step.pushed);
        notifications.extend(pushed.into_iter().map(|pushed| PeerNotification {
            client: pushed.client,
            id: pushed.id,
            message: PeerMessage::Granted { grant: pushed.grant, since: self.now },
        }));
        // Notifies claims that wait for the end of a hold and do not know yet that it may come sooner.
        if let Some(left) = queue.frees_in(now) {
            let is_sooner = known_left.is_none_or(|known| left < known);
            let left = micros_in(left);
            let uninformed = watchers(&queue).into_iter();
            let uninformed = uninformed.filter(|watcher| {
                asking.is_none_or(|asking| asking.0 != watcher.0)
                    && (is_sooner || !informed.contains(watcher))
            });
            let ends =
                |(id, client)| PeerNotification { client, id, message: PeerMessage::HoldEnds { left } };
            notifications.extend(uninformed.map(ends));
        }
        let mut saved = queue.save();
        let waits = |entry: &&mut Entry<_>| matches!(entry.kind, EntryKind::Waiting | EntryKind::Silent);
        if let Some((id, life)) = asking
            && let Some(entry) = saved.entries.iter_mut().filter(waits).find(|entry| entry.id == id)
        {
            entry.expires = entry.expires.max(now.after(life));
        }
        self.done(reply, notifications, saved, newest, &tombstones)
    }

    /// The name as operators see it.
    pub(crate) fn view(&self, name: &Name) -> View {
        self.queue().view(name, name.as_str(), instant(self.now))
    }

    /// The lock state that the rows describe.
    fn queue(&self) -> LockState<ClientId> {
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

    /// The changes that make the rows match the queue.
    fn done(
        &self,
        reply: Reply,
        notifications: Vec<PeerNotification>,
        mut saved: Saved<ClientId>,
        newest: i64,
        tombstones: &Tombstones,
    ) -> Changes {
        // Clients that poll find names in their minimum hold time in the same way as grants: by the client in the
        // row. So the client of the head of the queue is written there.
        let head_client =
            saved.entries.iter().find(|entry| entry.kind == EntryKind::Waiting).map(|entry| entry.client);
        for entry in saved.entries.iter_mut().filter(|entry| entry.kind == EntryKind::MinHold) {
            entry.client = head_client.unwrap_or(entry.client);
        }
        let known: HashMap<ClaimId, &ClaimRow> = self.claims.iter().map(|row| (row.id, row)).collect();
        let mut largest_place = self.claims.iter().map(|row| row.place).max().unwrap_or(0);
        let mut lock = LockRow {
            token: newest,
            holder: None,
            claims: 0,
            ended: previous_code(saved.last_end.previous),
            ended_upto: i64::try_from(saved.last_end.newest_token).unwrap_or(i64::MAX),
            ended_until: micros(saved.last_end.remembered_until),
        };
        let mut rows: Vec<ClaimRow> = Vec::with_capacity(saved.entries.len());
        // The place of the previous waiting entry.
        let mut last_place = 0;
        for entry in &saved.entries {
            if self.is_fast_path(entry) {
                lock.holder = Some(ClaimRow::of(entry, 0));
                continue;
            }
            let place = known.get(&entry.id).map_or(0, |row| row.place);
            let place = match entry.kind {
                // A claim that returned to the queue goes to its end.
                EntryKind::Waiting if place <= last_place => {
                    largest_place = largest_place.saturating_add(1);
                    largest_place
                }
                _ => place,
            };
            if entry.kind == EntryKind::Waiting {
                last_place = place;
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
        let remaining: HashSet<ClaimId> = rows.iter().map(|row| row.id).collect();
        let drop = self.claims.iter().map(|row| row.id).filter(|id| !remaining.contains(id)).collect();
        let put = rows.into_iter().filter(|row| known.get(&row.id) != Some(&row)).collect();
        Changes { reply, lock: Some(lock).filter(|lock| *lock != self.lock), put, drop, notifications }
    }

    /// Whether the claim is stored in the row of its name: a fast-path hold that was neither broken nor given a minimum
    /// hold since, or a hold that the fast path could have taken.
    fn is_fast_path(&self, entry: &Entry<ClientId>) -> bool {
        let in_lock_row = self.lock.holder.as_ref().is_some_and(|row| row.id == entry.id);
        let known = self.claims.iter().any(|row| row.id == entry.id);
        let (mode, ..) = crate::row::mode_codes(entry.mode);
        // Code 0 is an exclusive mode, and a confirmed hold.
        mode == 0 && kind_code(entry.kind) == 0 && (in_lock_row || !known)
    }
}

/// The claims near the head of the queue, whose clients check when a hold ahead ends.
fn watchers(queue: &LockState<ClientId>) -> Vec<(ClaimId, ClientId)> {
    queue.watchers().map(|(id, client)| (id, *client)).collect()
}

//! The claim table: what a client knows about its claims, on engines where all claims of a client share a lease or a
//! session.
//!
//! The truth is on the server. The table records what each claim has there, what it waits for, and until when it may
//! stay without a request of its own. A shared lease stays alive for all claims, so the client itself has to end a
//! claim for which no request comes any more. This is a pure state machine: time comes in, decisions come out.

mod entry;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    time::Duration,
};

pub use entry::{ClaimEntry, ClaimState};

use crate::{Answer, Claim, ClaimId, Hint, Instant, Loss, Notification};

/// After this time a hold is watched on the server, because other clients can end it there. Most holds end earlier and
/// need no watch.
pub const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// The poll intervals of a waiting claim whose blocker is watched. The server reports every change, so the poll is
/// needed only if such a report is lost.
pub const WATCHED_POLL: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(60);
/// The poll interval of a waiting claim whose blocker is not watched.
pub const UNWATCHED_POLL: Duration = Duration::from_millis(250);
/// How long a claim in the queue lasts after its last request. A waiting claim asks two or three times within this
/// time.
pub const WATCHED_CLAIM_LIFE: Duration = Duration::from_secs(150);

/// All claims of a client. `O` (own) is what a claim has on the server, such as a key; `B` (blocker) is what a waiting
/// claim waits for, such as the key ahead of it; `D` is further data of the engine.
pub struct ClaimTable<O, B, D> {
    entries: HashMap<ClaimId, ClaimEntry<O, B, D>>,
    /// When each claim is checked for expiry. If the claim was extended after its check was scheduled, the check only
    /// schedules the next check.
    expiry_checks: BTreeSet<(Instant, ClaimId)>,
    /// When the watch of each hold begins.
    watch_starts: BTreeSet<(Instant, ClaimId)>,
}

impl<O, B, D> Default for ClaimTable<O, B, D> {
    fn default() -> Self {
        Self { entries: HashMap::new(), expiry_checks: BTreeSet::new(), watch_starts: BTreeSet::new() }
    }
}

impl<O: Clone, B, D> ClaimTable<O, B, D> {
    /// The entry of a claim.
    pub fn get(&mut self, id: ClaimId) -> Option<&mut ClaimEntry<O, B, D>> {
        self.entries.get_mut(&id)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (ClaimId, &ClaimEntry<O, B, D>)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// Adds a claim. An older entry of the same claim is dropped.
    pub fn enter(&mut self, claim: &Claim, data: D, now: Instant) {
        self.remove(claim.id);
        let entry = ClaimEntry::new(claim, data, now);
        self.expiry_checks.insert((entry.next_check, claim.id));
        self.entries.insert(claim.id, entry);
    }

    /// Removes a claim with its scheduled check and watch.
    pub fn remove(&mut self, id: ClaimId) -> Option<ClaimEntry<O, B, D>> {
        let entry = self.entries.remove(&id)?;
        self.expiry_checks.remove(&(entry.next_check, id));
        self.watch_starts.remove(&(entry.watch_from, id));
        Some(entry)
    }

    /// The answer to a claim that is unknown, gone, lapsed or being ended: it needs no request to the server.
    /// `None` for every other claim.
    #[must_use]
    pub fn answer_without_request(&self, id: ClaimId) -> Option<Answer> {
        match self.entries.get(&id).map(|entry| &entry.state) {
            None | Some(ClaimState::Gone) => Some(Answer::Gone),
            Some(ClaimState::Ending { .. } | ClaimState::Lapsed) => {
                Some(Answer::Waiting(Hint::ask_in(UNWATCHED_POLL)))
            }
            Some(ClaimState::Made | ClaimState::Waiting { .. } | ClaimState::Held { .. }) => None,
        }
    }

    /// Records that the claim holds, with `own` on the server, until `until`, or longer if it sends further requests.
    /// `confirmed`: the client that made the claim knows of the hold. A new hold is watched from [`WATCHED_AFTER`] on.
    pub fn hold(&mut self, id: ClaimId, own: O, confirmed: bool, (now, until): (Instant, Instant)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let was_held = matches!(entry.state, ClaimState::Held { .. });
        entry.state = ClaimState::Held { own, confirmed };
        // A later answer never makes a hold end sooner than an earlier answer said.
        entry.expires = if was_held { entry.expires.max(until) } else { until };
        if entry.expires < entry.next_check {
            self.expiry_checks.remove(&(entry.next_check, id));
            entry.next_check = entry.expires;
            self.expiry_checks.insert((entry.next_check, id));
        }
        if !was_held {
            self.watch_from(id, now.after(WATCHED_AFTER));
        }
    }

    /// Sets when the watch of the claim begins, if the claim holds then.
    pub fn watch_from(&mut self, id: ClaimId, start: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.watch_starts.remove(&(entry.watch_from, id));
        entry.watch_from = start;
        self.watch_starts.insert((start, id));
    }

    /// Prepares new watches for the claims selected by `was_watched`, whose watches ended with their connection. Holds
    /// are watched from `now` on; `watch_blocker` is called with what each claim in the queue waits for.
    pub fn watch_again(
        &mut self,
        now: Instant,
        was_watched: impl Fn(&ClaimEntry<O, B, D>) -> bool,
        mut watch_blocker: impl FnMut(&mut B),
    ) {
        let mut holds = Vec::new();
        for (id, entry) in self.entries.iter_mut().filter(|(_, entry)| was_watched(entry)) {
            match &mut entry.state {
                ClaimState::Held { .. } => holds.push(*id),
                ClaimState::Waiting { blocker, .. } => watch_blocker(blocker),
                _ => {}
            }
        }
        holds.into_iter().for_each(|id| self.watch_from(id, now));
    }

    /// The holds whose watch is to begin by now. Each is returned only one time: the caller must begin to watch it.
    pub fn begin_watches(&mut self, now: Instant) -> Vec<ClaimId> {
        let mut holds = Vec::new();
        while let Some(&(start, id)) = self.watch_starts.first()
            && start <= now
        {
            self.watch_starts.pop_first();
            let entry = self.entries.get(&id);
            holds.extend(entry.filter(|entry| matches!(entry.state, ClaimState::Held { .. })).map(|_| id));
        }
        holds
    }

    /// When the next claim is to be checked or watched.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let firsts = [self.expiry_checks.first(), self.watch_starts.first()];
        firsts.into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// The claims that sent no request in time. Each is returned only one time: the caller must delete what it has on
    /// the server, and then call [`record_end`](Self::record_end). A claim that has nothing on the server any more is
    /// dropped from the table and not returned.
    pub fn take_overdue(&mut self, now: Instant) -> Vec<ClaimId> {
        let mut overdue = Vec::new();
        while let Some(&(check, id)) = self.expiry_checks.first()
            && check <= now
        {
            self.expiry_checks.pop_first();
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.expires > now {
                entry.next_check = entry.expires;
                self.expiry_checks.insert((entry.next_check, id));
                continue;
            }
            let may_requeue = match entry.state {
                ClaimState::Lapsed => {
                    self.remove(id);
                    continue;
                }
                ClaimState::Ending { .. } => continue,
                ClaimState::Held { confirmed, .. } => !confirmed,
                _ => false,
            };
            entry.state = ClaimState::Ending { own: entry.state.own().cloned(), may_requeue };
            overdue.push(id);
        }
        overdue
    }

    /// Records that the server has nothing of an overdue claim any more. Returns the entry of the claim, unless the
    /// table keeps it: the client of a claim that was granted without confirmation may send another request.
    pub fn record_end(&mut self, id: ClaimId, now: Instant) -> Option<ClaimEntry<O, B, D>> {
        let entry = self.entries.get_mut(&id)?;
        match entry.state {
            ClaimState::Ending { may_requeue: true, .. } => {
                entry.state = ClaimState::Lapsed;
                entry.expires = now.after(WATCHED_CLAIM_LIFE);
                entry.next_check = entry.expires;
                self.expiry_checks.insert((entry.next_check, id));
                None
            }
            ClaimState::Ending { .. } => self.remove(id),
            _ => None,
        }
    }

    /// The notifications for the claims selected by `on_lease`, whose lease the server ended: their holds are lost, and
    /// all their other claims have to be asked for.
    pub fn notifications_of_lost_lease(
        &self,
        on_lease: impl Fn(&ClaimEntry<O, B, D>) -> bool,
    ) -> Vec<Notification> {
        let claims_on_lease = self.entries().filter(|(_, entry)| on_lease(entry));
        claims_on_lease
            .map(|(id, entry)| {
                let name = entry.name.clone();
                match entry.state {
                    ClaimState::Held { .. } => Notification::Lost { name, id, loss: Loss::Gone },
                    _ => Notification::Recheck { name, id },
                }
            })
            .collect()
    }
}

impl<O, B, D> std::fmt::Debug for ClaimTable<O, B, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimTable").field("claims", &self.entries.len()).finish_non_exhaustive()
    }
}

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
    time::Duration,
};

pub use entry::{ClaimEntry, ClaimState};

use crate::{Answer, Claim, ClaimId, Hint, Instant, Loss, Notification};

/// A hold that lasts so long is watched, because others may end it. Most holds end earlier.
pub const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// All claims of a client. `O` (own) is what a claim has on the server, such as a key; `B` (before) is what a waiting
/// claim waits for, such as the key ahead of it; `D` is further data of the engine.
pub struct ClaimTable<O, B, D> {
    entries: HashMap<ClaimId, ClaimEntry<O, B, D>>,
    /// When each claim is checked for expiry. The time of a claim may have been extended since its entry here was made.
    due: BTreeSet<(Instant, ClaimId)>,
    /// When the watch of each hold begins.
    unwatched: BTreeSet<(Instant, ClaimId)>,
}

impl<O, B, D> Default for ClaimTable<O, B, D> {
    fn default() -> Self {
        Self { entries: HashMap::new(), due: BTreeSet::new(), unwatched: BTreeSet::new() }
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
        self.due.insert((entry.due, claim.id));
        self.entries.insert(claim.id, entry);
    }

    /// Removes a claim with all its timers.
    pub fn remove(&mut self, id: ClaimId) -> Option<ClaimEntry<O, B, D>> {
        let entry = self.entries.remove(&id)?;
        self.due.remove(&(entry.due, id));
        self.unwatched.remove(&(entry.watched_at, id));
        Some(entry)
    }

    /// The answer to a claim that is unknown, given up or being ended, without a request to the server; `None` for
    /// every other claim.
    #[must_use]
    pub fn closed(&self, id: ClaimId) -> Option<Answer> {
        match self.entries.get(&id).map(|entry| &entry.state) {
            None | Some(ClaimState::Gone) => Some(Answer::Gone),
            Some(ClaimState::Ending { .. } | ClaimState::Lapsed) => Some(Answer::Waiting(Hint::default())),
            Some(ClaimState::Made | ClaimState::Waiting { .. } | ClaimState::Held { .. }) => None,
        }
    }

    /// Records that the claim holds, with `own` on the server, until `until`, or longer if it sends further requests.
    /// `confirmed`: the client knows of the hold. A new hold is watched from [`WATCHED_AFTER`] on.
    pub fn hold(&mut self, id: ClaimId, own: O, confirmed: bool, (now, until): (Instant, Instant)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let was_held = matches!(entry.state, ClaimState::Held { .. });
        entry.state = ClaimState::Held { own, confirmed };
        // A hold never ends sooner than by an earlier answer.
        entry.until = if was_held { entry.until.max(until) } else { until };
        if entry.until < entry.due {
            self.due.remove(&(entry.due, id));
            entry.due = entry.until;
            self.due.insert((entry.due, id));
        }
        if !was_held {
            self.watch_at(id, now.after(WATCHED_AFTER));
        }
    }

    /// Sets when the watch of the claim begins, if the claim holds then.
    pub fn watch_at(&mut self, id: ClaimId, at: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.unwatched.remove(&(entry.watched_at, id));
        entry.watched_at = at;
        self.unwatched.insert((at, id));
    }

    /// Prepares new watches for the claims selected by `lost`, whose watches ended with their connection. Holds are
    /// watched from `now` on; `waits` is called with what each claim in the queue waits for.
    pub fn watch_again(
        &mut self,
        now: Instant,
        lost: impl Fn(&ClaimEntry<O, B, D>) -> bool,
        mut waits: impl FnMut(&mut B),
    ) {
        let mut held = Vec::new();
        for (id, entry) in self.entries.iter_mut().filter(|(_, entry)| lost(entry)) {
            match &mut entry.state {
                ClaimState::Held { .. } => held.push(*id),
                ClaimState::Waiting { before, .. } => waits(before),
                _ => {}
            }
        }
        held.into_iter().for_each(|id| self.watch_at(id, now));
    }

    /// The holds whose watch begins now, each once.
    pub fn lasting(&mut self, now: Instant) -> Vec<ClaimId> {
        let mut lasting = Vec::new();
        while let Some(&(at, id)) = self.unwatched.first()
            && at <= now
        {
            self.unwatched.pop_first();
            let entry = self.entries.get(&id);
            lasting.extend(entry.filter(|entry| matches!(entry.state, ClaimState::Held { .. })).map(|_| id));
        }
        lasting
    }

    /// When the next claim is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let first = [self.due.first(), self.unwatched.first()];
        first.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// The claims that sent no request in time, each once: the caller deletes what they have on the server. A claim
    /// that has nothing on the server any more is dropped.
    pub fn overdue(&mut self, now: Instant) -> Vec<ClaimId> {
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
            let again = match entry.state {
                ClaimState::Lapsed => {
                    self.remove(id);
                    continue;
                }
                ClaimState::Ending { .. } => continue,
                ClaimState::Held { confirmed, .. } => !confirmed,
                _ => false,
            };
            entry.state = ClaimState::Ending { own: entry.state.own().cloned(), again };
            overdue.push(id);
        }
        overdue
    }

    /// Records that the server has nothing of an overdue claim any more. Returns the entry of the claim, unless the
    /// table keeps it: a claim that was granted without knowing it may send another request.
    pub fn ended(&mut self, id: ClaimId, now: Instant) -> Option<ClaimEntry<O, B, D>> {
        let entry = self.entries.get_mut(&id)?;
        match entry.state {
            ClaimState::Ending { again: true, .. } => {
                entry.state = ClaimState::Lapsed;
                entry.until = now.after(entry.lifetime);
                entry.due = entry.until;
                self.due.insert((entry.due, id));
                None
            }
            ClaimState::Ending { .. } => self.remove(id),
            _ => None,
        }
    }

    /// The notifications for the claims selected by `on_lease`, whose lease the server ended: their holds are lost, and
    /// all their other claims have to be asked for.
    pub fn lost(&self, on_lease: impl Fn(&ClaimEntry<O, B, D>) -> bool) -> Vec<Notification> {
        let lost = self.entries().filter(|(_, entry)| on_lease(entry));
        lost.map(|(id, entry)| {
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

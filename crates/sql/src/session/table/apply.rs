//! Replies of the server: what each part of a batch was for, and what its outcome changes.

use std::time::Duration;

use leasehold_core::{Answer, ClaimId, EngineError, HAND_OVER_TOKENS, Instant, Name};

use super::{KeyStage, LocalHold, Outcome, Table, Waiter};
use crate::{
    database::Failed,
    session::{
        lock_key::Key,
        server::{Batch, BatchReply, Tried, Try, Unlock},
    },
};

/// The most parts of one kind in a batch: a message of a few hundred kilobytes.
const MAX_PARTS: usize = 4096;
/// The least number of unlocks and tries that are worth two batches: each batch costs the server a fixed time.
const MIN_PARTS_OF_TWO: usize = 6;
/// The most tries of permits in a batch: each is a statement of its own, with all permits of its name.
const MAX_PERMIT_TRIES: usize = 32;
/// For how long a name is left to other processes after a release that notified them. They need a round trip to take
/// it, and without this time the next claim of this process would nearly always be faster.
const GAP: Duration = Duration::from_millis(5);

/// What the parts of a batch are for.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The session on which the batch is sent.
    pub(super) session: u64,
    /// For each unlock, the hold that ends with it, if it is the last unlock of a hold.
    pub(super) unlock_owners: Vec<Option<UnlockOwner>>,
    pub(super) watches: Vec<Key>,
    pub(super) tries: Vec<(Name, ClaimId)>,
    pub(super) unwatched: Vec<Key>,
}

/// A hold that ends with an unlock.
#[derive(Clone, Debug)]
pub(crate) struct UnlockOwner {
    pub(super) name: Name,
    pub(super) id: ClaimId,
}

impl Table {
    /// Whether there is something to send.
    pub(crate) fn has_pending(&self) -> bool {
        let batch = &self.pending.0;
        !(batch.unlocks.is_empty()
            && batch.watches.is_empty()
            && batch.tries.is_empty()
            && batch.unwatched.is_empty())
    }

    /// The next batch, if there is something to send.
    pub(crate) fn take_batch(&mut self) -> Option<(Batch, Plan)> {
        self.take(MAX_PARTS, MAX_PARTS)
    }

    /// The first of two batches that are sent one after the other, if there is enough to send for two, else all.
    pub(crate) fn take_half(&mut self) -> Option<(Batch, Plan)> {
        let batch = &self.pending.0;
        let (unlocks, tries) = (batch.unlocks.len(), batch.tries.len());
        if unlocks + tries < MIN_PARTS_OF_TWO {
            return self.take_batch();
        }
        self.take(unlocks.div_ceil(2).min(MAX_PARTS), tries.div_ceil(2).min(MAX_PARTS))
    }

    /// A batch of at most so many unlocks and tries.
    fn take(&mut self, most_unlocks: usize, most_tries: usize) -> Option<(Batch, Plan)> {
        if !self.has_pending() {
            return None;
        }
        let (batch, plan) = &mut self.pending;
        plan.session = self.terms.number;
        let tries = tries_of_a_batch(&batch.tries, most_tries);
        if batch.unlocks.len() <= most_unlocks
            && batch.watches.len() <= MAX_PARTS
            && tries == batch.tries.len()
        {
            return Some(std::mem::take(&mut self.pending));
        }
        Some(self.take_part_of_pending(most_unlocks, tries))
    }

    /// A part of the requests to send. An unlock of a hold stays with the other unlocks of the hold, and a try stays
    /// behind its watch.
    fn take_part_of_pending(&mut self, most_unlocks: usize, tries: usize) -> (Batch, Plan) {
        let (batch, plan) = &mut self.pending;
        let mut unlocks = most_unlocks.min(batch.unlocks.len());
        while 0 < unlocks && unlocks < batch.unlocks.len() && plan.unlock_owners[unlocks - 1].is_none() {
            unlocks += 1;
        }
        let watches = MAX_PARTS.min(batch.watches.len());
        let (mut part, mut part_plan) = (Batch::default(), Plan { session: plan.session, ..Plan::default() });
        part.unlocks = batch.unlocks.drain(..unlocks).collect();
        part_plan.unlock_owners = plan.unlock_owners.drain(..unlocks).collect();
        part.watches = batch.watches.drain(..watches).collect();
        part_plan.watches = plan.watches.drain(..watches).collect();
        if batch.watches.is_empty() {
            part.tries = batch.tries.drain(..tries).collect();
            part_plan.tries = plan.tries.drain(..tries).collect();
        }
        if batch.unlocks.is_empty() {
            part.unwatched = std::mem::take(&mut batch.unwatched);
            part_plan.unwatched = std::mem::take(&mut plan.unwatched);
        }
        (part, part_plan)
    }

    /// Applies the reply to a batch that was sent at `sent_at`.
    pub(crate) fn apply(
        &mut self,
        (batch, plan): (Batch, Plan),
        reply: BatchReply,
        sent_at: Instant,
        now: Instant,
    ) {
        if plan.session != self.terms.number {
            return;
        }
        for unlock in &batch.unlocks {
            self.key_is_free(&unlock.key, now);
        }
        for (owner, woke) in plan.unlock_owners.into_iter().zip(&reply.woke) {
            if let Some(owner) = owner {
                self.hold_ended(&owner, *woke, now);
            }
        }
        for (waiters, watched) in plan.watches.iter().zip(reply.watched) {
            self.watched(waiters, watched);
        }
        for (((name, id), attempt), tried) in plan.tries.into_iter().zip(batch.tries).zip(reply.tried) {
            let tried_keys: Vec<Key> = attempt.lock.into_iter().map(|(key, _)| key).collect();
            let candidates = attempt.permits.map(|permits| permits.candidates).unwrap_or_default();
            match tried {
                Tried::Granted(permits) => {
                    tried_keys.iter().chain(&permits).for_each(|key| self.key_is_locked(key));
                    let unused = candidates.iter().filter(|key| !permits.contains(key));
                    unused.for_each(|key| self.key_is_free(key, now));
                    self.granted(&name, id, permits, reply.token, (sent_at, now));
                }
                Tried::Taken => {
                    self.give_back(&name, &tried_keys, &candidates, now);
                    self.taken(&name, id, now);
                }
                Tried::Failed(failed) => {
                    self.give_back(&name, &tried_keys, &candidates, now);
                    self.failed(&name, id, &failed, now);
                }
            }
        }
        for waiters in plan.unwatched {
            self.unwatched(&waiters, now);
        }
    }

    /// Records that a batch failed without effect, except for its unlocks.
    pub(crate) fn undone(&mut self, (batch, plan): (Batch, Plan), failed: &Failed, now: Instant) {
        if plan.session != self.terms.number {
            return;
        }
        for unlock in &batch.unlocks {
            self.key_is_free(&unlock.key, now);
        }
        for owner in plan.unlock_owners.into_iter().flatten() {
            self.hold_ended(&owner, false, now);
        }
        for (waiters, watch) in plan.watches.iter().zip(&batch.watches) {
            self.watched(waiters, (watch.announced, watch.polls));
        }
        for ((name, id), attempt) in plan.tries.into_iter().zip(batch.tries) {
            let tried_keys: Vec<Key> = attempt.lock.into_iter().map(|(key, _)| key).collect();
            let candidates = attempt.permits.map(|permits| permits.candidates).unwrap_or_default();
            self.give_back(&name, &tried_keys, &candidates, now);
            self.failed(&name, id, failed, now);
        }
        for waiters in plan.unwatched {
            self.unwatched(&waiters, now);
        }
    }

    /// Records that the session has a key.
    fn key_is_locked(&mut self, key: &Key) {
        if let Some(used) = self.keys.get_mut(key) {
            used.stage = KeyStage::Locked;
        }
    }

    /// Records that the session does not have a key any more. The names that waited for it are tried.
    fn key_is_free(&mut self, key: &Key, now: Instant) {
        let Some(used) = self.keys.remove(key) else { return };
        self.advance(&used.name, now);
        used.colliding.iter().for_each(|name| self.advance(name, now));
    }

    /// Records that a try took nothing.
    fn give_back(&mut self, name: &Name, tried_keys: &[Key], candidates: &[Key], now: Instant) {
        tried_keys.iter().chain(candidates).for_each(|key| self.key_is_free(key, now));
        if tried_keys.is_empty()
            && let Some(state) = self.names.get(name)
        {
            let (lock, waiters) = (state.keys.lock.clone(), state.keys.waiters.clone());
            self.drop_user(&lock, waiters);
        }
    }

    /// Records that a claim which had joined the holds of its name does not use their lock. Puts the unlock into the
    /// next batch if these holds have ended meanwhile.
    fn drop_user(&mut self, lock: &Key, wake: Option<Key>) {
        let Some(used) = self.keys.get_mut(lock) else { return };
        used.users = used.users.saturating_sub(1);
        if used.users == 0 {
            used.stage = KeyStage::Unlocking;
            self.pending.0.unlocks.push(Unlock { key: lock.clone(), share: used.share, wake });
            self.pending.1.unlock_owners.push(None);
        }
    }

    /// Records that a hold has ended on the server.
    fn hold_ended(&mut self, owner: &UnlockOwner, woke: bool, now: Instant) {
        let Some(state) = self.names.get_mut(&owner.name) else { return };
        if let Some(index) = state.holds.iter().position(|hold| hold.id == owner.id) {
            let hold = state.holds.remove(index);
            self.outcomes.push(Outcome::Released(hold.id, Ok(hold.is_named)));
        }
        if woke {
            state.gap_until = now.after(GAP);
        }
        self.advance(&owner.name, now);
    }

    /// Makes the claim whose try was granted a holder.
    fn granted(
        &mut self,
        name: &Name,
        id: ClaimId,
        permits: Vec<Key>,
        number: u64,
        (sent_at, now): (Instant, Instant),
    ) {
        let Some((waiter, _)) = self.end_try(name, id) else { return };
        let Some(state) = self.names.get_mut(name) else { return };
        let (token, tokens) = (self.terms.token(number), waiter.claim.tokens.clamp(1, HAND_OVER_TOKENS));
        let Waiter { claim, asked, abandoned, .. } = waiter;
        let (mode, owner, since, releasing, is_named) = (claim.mode, claim.owner, now, abandoned, true);
        let hold = LocalHold { id, mode, token, tokens, owner, since, sent_at, permits, releasing, is_named };
        state.holds.push(hold);
        state.waits_since = now;
        if abandoned {
            let index = state.holds.len() - 1;
            self.unlock(name, index, now);
        } else if let Some(asked) = asked {
            // The request may have been repeated after the batch was sent.
            let grant = self.terms.grant((token, tokens), claim.ttl, asked.since(sent_at));
            self.outcomes.push(Outcome::Answer(id, Ok(Answer::Held(grant))));
        } else {
            let ttl = claim.claim_time.min(claim.ttl);
            let grant = self.terms.grant((token, tokens), ttl, Duration::ZERO);
            self.outcomes.push(Outcome::Granted { name: name.clone(), id, grant, since: sent_at });
        }
        self.advance(name, now);
    }

    /// Handles a try that was not granted.
    fn taken(&mut self, name: &Name, id: ClaimId, now: Instant) {
        let Some((mut waiter, try_again)) = self.end_try(name, id) else { return };
        if waiter.abandoned {
            self.outcomes.push(Outcome::Released(id, Ok(true)));
        } else if waiter.claim.may_queue {
            waiter.tried = !try_again;
            self.put_back(name, waiter);
            self.schedule_poll(name, now);
        } else {
            self.outcomes.push(Outcome::Answer(id, Ok(Answer::Taken(Default::default()))));
        }
        self.advance(name, now);
    }

    /// Handles a try that failed without effect.
    fn failed(&mut self, name: &Name, id: ClaimId, failed: &Failed, now: Instant) {
        let Some((mut waiter, _)) = self.end_try(name, id) else { return };
        if waiter.abandoned {
            self.outcomes.push(Outcome::Released(id, Ok(true)));
        } else {
            let asked = waiter.asked.take();
            if asked.is_some() {
                let error = EngineError::from(failed.clone());
                self.outcomes.push(Outcome::Answer(id, Err(error)));
            }
            if waiter.claim.may_queue && asked.is_none() {
                waiter.tried = true;
                self.put_back(name, waiter);
                self.schedule_poll(name, now);
            }
        }
        self.advance(name, now);
    }

    /// Takes the claim whose try was answered out of the queue. Also returns whether there was a reason to try again
    /// while the try was in flight.
    fn end_try(&mut self, name: &Name, id: ClaimId) -> Option<(Waiter, bool)> {
        let state = self.names.get_mut(name)?;
        state.trying = false;
        let try_again = std::mem::take(&mut state.try_again);
        let position = state.queue.iter().position(|waiter| waiter.claim.id == id)?;
        Some((state.queue.remove(position)?, try_again))
    }

    /// Puts a claim back at the head of the queue.
    fn put_back(&mut self, name: &Name, waiter: Waiter) {
        if let Some(state) = self.names.get_mut(name) {
            state.queue.push_front(waiter);
        }
    }
}

/// How many of these tries, `most` of them at most, fit into a batch.
fn tries_of_a_batch(tries: &[Try], most: usize) -> usize {
    let mut permit_tries = 0;
    let fits = |attempt: &&Try| {
        permit_tries += usize::from(attempt.permits.is_some());
        permit_tries <= MAX_PERMIT_TRIES
    };
    tries.iter().take(most).take_while(fits).count()
}

//! The queue of one process: which claim is tried next, and what the others are answered.

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Hint, How, Instant, Mode, Name, lock_state::MAX_WAITERS,
};

use super::{KeyStage, KeyUse, LocalHold, NameState, Outcome, Table, Waiter};
use crate::session::server::{NameKeys, PermitKeys, Share, Try};

/// The keys of the permits of a name, with the key of their gate.
pub(crate) type AllPermitKeys = (Vec<crate::session::lock_key::Key>, crate::session::lock_key::Key);

/// The keys of a name that waits for another process: the key of the waiters, the key of the poller, and the lock while
/// it is tried.
const KEYS_OF_WAITING: usize = 3;

/// Whether a claim fits beside the holds of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// It fits.
    Now,
    /// It will fit when a release of this process is answered.
    AfterRelease,
    /// Another claim of this process is in its way.
    No,
}

/// A claim, and its keys.
pub(crate) struct KeyedClaim<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) keys: NameKeys,
    /// For a claim of permits.
    pub(crate) permit_keys: Option<AllPermitKeys>,
    /// When the request was made: the claim counts the ttl of its grant from then, or from earlier.
    pub(crate) asked: Instant,
}

impl Table {
    /// A request of a claim. Its answer is one of the outcomes, at once or after a reply of the server.
    pub(crate) fn claim(&mut self, keyed: KeyedClaim<'_>, how: How, now: Instant) {
        let KeyedClaim { claim, keys, permit_keys, asked } = keyed;
        let answer = |answer| Outcome::Answer(claim.id, answer);
        if self.released.contains(claim.id, now) {
            return self.outcomes.push(answer(Ok(Answer::Gone)));
        }
        if let Some(grant) = self.grant_of(claim, asked) {
            return self.outcomes.push(answer(Ok(Answer::Held(grant))));
        }
        let known = self.names.get_mut(&claim.name).and_then(|state| {
            let position = state.queue.iter().position(|waiter| waiter.claim.id == claim.id)?;
            let waiter = &mut state.queue[position];
            waiter.asked = Some(asked);
            waiter.tried &= position > 0 || state.trying;
            Some(())
        });
        if known.is_some() {
            return self.advance(&claim.name, now);
        }
        let is_held = self.names.get(&claim.name).is_some_and(|state| state.has_hold(claim.id));
        if how == How::Ask || is_held {
            return self.outcomes.push(answer(Ok(Answer::Gone)));
        }
        let state = self.names.entry(claim.name.clone()).or_insert_with(|| NameState::new(keys));
        if let Err(error) = state.check_mode(claim.mode).and_then(|()| state.check_room()) {
            self.outcomes.push(answer(Err(error)));
            return self.drop_if_idle(&claim.name);
        }
        let (asked, tried, abandoned, since) = (Some(asked), false, false, now);
        state.queue.push_back(Waiter { claim: claim.clone(), permit_keys, asked, tried, abandoned, since });
        self.advance(&claim.name, now);
    }

    /// Tries the claim at the head of the queue if there is a reason to, and answers the others.
    pub(super) fn advance(&mut self, name: &Name, now: Instant) {
        while let Some(state) = self.names.get(name)
            && !state.trying
            && self.terms.number != 0
        {
            let Some(head) = state.queue.front() else {
                self.end_watch(name);
                return self.drop_if_idle(name);
            };
            let (head_id, tried) = (head.claim.id, head.tried);
            let from = self.terms.grants_from.max(state.gap_until);
            let fit = if now < from { Fit::No } else { self.fit(name, state, head.claim.mode) };
            match fit {
                Fit::AfterRelease => return self.wait_for_collision(name),
                Fit::Now if !tried && (state.watched || self.has_room_for(1)) => return self.begin_try(name),
                Fit::Now if !state.watched && !self.has_room_for(if tried { KEYS_OF_WAITING } else { 1 }) => {
                    let keys = self.terms.max_keys;
                    let message = format!(
                        "this process uses {keys} locks, half of the lock table of the server: hold and await fewer names at a time, or raise max_locks_per_transaction of the server"
                    );
                    self.refuse_head(name, &EngineError::new(Fault::Refused, message));
                }
                // Another process holds the name. The name is tried again after its notifications are subscribed to.
                Fit::Now if self.begin_watch(name, now) => {
                    self.answer_waiters(name);
                    return self.begin_try(name);
                }
                Fit::Now => {}
                Fit::No if now < from => self.schedule(name, from),
                Fit::No => self.wait_for_collision(name),
            }
            self.answer_waiters(name);
            let new_head = self.names.get(name).and_then(|state| state.queue.front());
            if new_head.is_some_and(|head| head.claim.id == head_id) {
                return;
            }
        }
    }

    /// Whether the session may have this many keys more. A watched name counts with the key that its next try takes, so
    /// that a claim that waits always has room to be granted.
    fn has_room_for(&self, keys: usize) -> bool {
        self.keys.len() + KEYS_OF_WAITING * self.watches.len() + keys <= self.terms.max_keys
    }

    /// Refuses the claim at the head of the queue.
    fn refuse_head(&mut self, name: &Name, error: &EngineError) {
        let Some(head) = self.names.get_mut(name).and_then(|state| state.queue.pop_front()) else { return };
        let (id, error) = (head.claim.id, error.without_source());
        self.outcomes.push(match head.asked {
            Some(_) => Outcome::Answer(id, Err(error)),
            // The claim asks, and is refused then.
            None => Outcome::Recheck(name.clone(), id),
        });
    }

    /// Answers every claim that asked: it waits, or the name is taken.
    fn answer_waiters(&mut self, name: &Name) {
        let Some(state) = self.names.get_mut(name) else { return };
        let mut ahead = 0;
        let outcomes = &mut self.outcomes;
        state.queue.retain_mut(|waiter| {
            let may_queue = waiter.claim.may_queue;
            if waiter.asked.take().is_some() {
                let hint = Hint { ahead: Some(ahead), ..Hint::default() };
                let answer = if may_queue { Answer::Waiting(hint) } else { Answer::Taken(hint) };
                outcomes.push(Outcome::Answer(waiter.claim.id, Ok(answer)));
            }
            ahead += u32::from(may_queue);
            may_queue
        });
    }

    /// Whether a claim in this mode fits beside the holds of this process.
    fn fit(&self, name: &Name, state: &NameState, mode: Mode) -> Fit {
        if !fits_beside(mode, state.holds.iter()) {
            let left = fits_beside(mode, state.holds.iter().filter(|hold| !hold.releasing));
            return if left { Fit::AfterRelease } else { Fit::No };
        }
        match self.keys.get(&state.keys.lock) {
            None => Fit::Now,
            Some(key) if key.stage == KeyStage::Unlocking => Fit::AfterRelease,
            // The claim joins the holds of its own name.
            Some(key) if key.stage == KeyStage::Locked && key.name == *name => Fit::Now,
            Some(_) => Fit::No,
        }
    }

    /// Notes that the name waits for its key, if another name with the same key has it.
    fn wait_for_collision(&mut self, name: &Name) {
        let Some(state) = self.names.get(name) else { return };
        if let Some(key) = self.keys.get_mut(&state.keys.lock)
            && key.name != *name
            && !key.colliding.contains(name)
        {
            key.colliding.push(name.clone());
        }
    }

    /// Puts a try for the head of the queue into the next batch.
    fn begin_try(&mut self, name: &Name) {
        let Some(state) = self.names.get_mut(name) else { return };
        let Some(head) = state.queue.front() else { return };
        let share = if head.claim.mode == Mode::Exclusive { Share::Alone } else { Share::Beside };
        let (batch, plan) = &mut self.pending;
        let mut attempt = Try { lock: None, permits: None };
        match self.keys.get_mut(&state.keys.lock) {
            Some(key) => key.users += 1,
            None => {
                let key = KeyUse::locking(name, share);
                self.keys.insert(state.keys.lock.clone(), key);
                attempt.lock = Some((state.keys.lock.clone(), share));
            }
        }
        if let (Mode::Permits { count, .. }, Some((candidates, gate))) = (head.claim.mode, &head.permit_keys)
        {
            let free = candidates.iter().filter(|key| !self.keys.contains_key(key)).cloned();
            let candidates: Vec<_> = free.collect();
            for key in &candidates {
                self.keys.insert(key.clone(), KeyUse::locking(name, Share::Alone));
            }
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            attempt.permits = Some(PermitKeys { candidates, count, gate: gate.clone() });
        }
        state.trying = true;
        plan.tries.push((name.clone(), head.claim.id));
        batch.tries.push(attempt);
    }
}

/// Whether a claim in this mode fits beside these holds of its name.
fn fits_beside<'a>(mode: Mode, mut holds: impl Iterator<Item = &'a LocalHold>) -> bool {
    let mut permits = 0;
    let are_compatible = holds.all(|hold| match (mode, hold.mode) {
        (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { .. }, Mode::Permits { count, .. }) => {
            permits += u64::from(count);
            true
        }
        _ => false,
    });
    are_compatible
        && !matches!(mode, Mode::Permits { count, limit } if permits + u64::from(count) > u64::from(limit))
}

impl KeyUse {
    fn locking(name: &Name, share: Share) -> Self {
        Self { name: name.clone(), share, users: 1, stage: KeyStage::Locking, colliding: Vec::new() }
    }
}

impl NameState {
    fn has_hold(&self, id: ClaimId) -> bool {
        self.holds.iter().any(|hold| hold.id == id)
    }

    /// Refuses a claim if too many claims of this process wait.
    fn check_room(&self) -> Result<(), EngineError> {
        if self.queue.len() < MAX_WAITERS {
            return Ok(());
        }
        Err(EngineError::new(Fault::Refused, format!("the queue is full: {MAX_WAITERS} claims wait already")))
    }

    /// Refuses a mode that can never be granted, or that is of another kind than the claims of this process.
    fn check_mode(&self, asked: Mode) -> Result<(), EngineError> {
        if let Mode::Permits { count, limit } = asked
            && !(1..=limit).contains(&count)
        {
            let message = format!("{asked} can never be granted: the count must be from 1 to the limit");
            return Err(EngineError::new(Fault::Internal, message));
        }
        let held = self.holds.iter().filter(|hold| !hold.releasing).map(|hold| hold.mode);
        let waiting = self.queue.iter().map(|waiter| waiter.claim.mode);
        match held.chain(waiting).find(|found| !found.same_kind(asked)) {
            Some(found) => Err(EngineError::new(
                Fault::Misconfigured,
                format!(
                    "it is in use now as {found} and cannot be claimed as {asked}: one name is one kind of lock with one limit"
                ),
            )),
            None => Ok(()),
        }
    }
}

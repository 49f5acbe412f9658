//! Releases, and the end of a session.

use leasehold_core::{EngineError, Fault, Instant, Name, Release};

use super::{KeyStage, Outcome, REQUEST_LIFE, Table, apply::UnlockOwner};
use crate::session::server::{Share, Unlock};

impl Table {
    /// Releases a claim. The answer is one of the outcomes, at once or after a reply of the server.
    pub(crate) fn release(&mut self, release: &Release, now: Instant) {
        self.released.add(release.id, now, now.after(REQUEST_LIFE));
        let Some(state) = self.names.get_mut(&release.name) else {
            return self.outcomes.push(Outcome::Released(release.id, Ok(false)));
        };
        if let Some(index) = state.holds.iter().position(|hold| hold.id == release.id) {
            let hold = &mut state.holds[index];
            // A hold with another token than the named one is ended, too, but the release did not name it.
            hold.is_named = release.token.is_none_or(|token| token == hold.token);
            if !std::mem::replace(&mut hold.releasing, true) {
                self.unlock(&release.name, index, now);
            }
            return;
        }
        let Some(index) = state.queue.iter().position(|waiter| waiter.claim.id == release.id) else {
            return self.outcomes.push(Outcome::Released(release.id, Ok(false)));
        };
        if index == 0 && state.trying {
            state.queue[0].abandoned = true;
            return;
        }
        state.queue.remove(index);
        self.outcomes.push(Outcome::Released(release.id, Ok(release.token.is_none())));
        self.advance(&release.name, now);
    }

    /// Puts the unlocks of a hold into the next batch. A hold whose keys other holds still need ends at once.
    pub(super) fn unlock(&mut self, name: &Name, index: usize, now: Instant) {
        let Some(state) = self.names.get_mut(name) else { return };
        let hold = &state.holds[index];
        let mut unlocks: Vec<Unlock> = Vec::new();
        for key in &hold.permits {
            if let Some(used) = self.keys.get_mut(key) {
                used.stage = KeyStage::Unlocking;
            }
            unlocks.push(Unlock { key: key.clone(), share: Share::Alone, wake: None });
        }
        let lock = &state.keys.lock;
        if let Some(used) = self.keys.get_mut(lock) {
            used.users = used.users.saturating_sub(1);
            if used.users == 0 {
                used.stage = KeyStage::Unlocking;
                unlocks.push(Unlock { key: lock.clone(), share: used.share, wake: None });
            }
        }
        let Some(last) = unlocks.last_mut() else {
            let hold = state.holds.remove(index);
            self.outcomes.push(Outcome::Released(hold.id, Ok(hold.is_named)));
            return self.advance(name, now);
        };
        last.wake = state.keys.waiters.clone();
        let (batch, plan) = &mut self.pending;
        batch.unlocks.extend(unlocks);
        plan.unlock_owners.resize(batch.unlocks.len(), None);
        if let Some(owner) = plan.unlock_owners.last_mut() {
            *owner = Some(UnlockOwner { name: name.clone(), id: hold.id });
        }
    }

    /// Ends the current session: every hold is lost, and every waiting claim waits for the next session.
    pub(crate) fn end_session(&mut self, reason: &EngineError) {
        self.terms.number = 0;
        self.keys.clear();
        self.watches.clear();
        self.pending = Default::default();
        let mut idle = Vec::new();
        for (name, state) in &mut self.names {
            for hold in state.holds.drain(..) {
                // Whether a release arrived before the session ended is not known: the hold is not reported as freed.
                self.outcomes.push(match hold.releasing {
                    true => Outcome::Released(hold.id, Ok(false)),
                    false => Outcome::Lost(name.clone(), hold.id),
                });
            }
            (state.trying, state.try_again, state.watched) = (false, false, false);
            let outcomes = &mut self.outcomes;
            state.queue.retain_mut(|waiter| {
                let id = waiter.claim.id;
                if waiter.abandoned {
                    outcomes.push(Outcome::Released(id, Ok(true)));
                    return false;
                }
                waiter.tried = false;
                if waiter.asked.take().is_some() {
                    let error = EngineError::new(Fault::Unknown, reason.message.clone());
                    outcomes.push(Outcome::Answer(id, Err(error)));
                    return waiter.claim.may_queue;
                }
                outcomes.push(Outcome::Recheck(name.clone(), id));
                true
            });
            if state.queue.is_empty() {
                idle.push(name.clone());
            }
        }
        idle.iter().for_each(|name| self.drop_if_idle(name));
    }
}

//! Claims: taking the name, entering the queue, or asking for the state of a claim.

use super::{
    LockState, MAX_WAITERS, Refusal, StepContext,
    entry::{Holder, Waiter},
};
use crate::{Answer, Claim, How, Mode};

impl<C: Clone> LockState<C> {
    /// Takes the name, enters the queue, or reports the state of the claim. Notifications of the claim go to `client`
    /// from now on.
    ///
    /// # Errors
    /// A [`Refusal`], and nothing of the claim was created.
    pub fn claim(
        &mut self,
        claim: &Claim,
        how: How,
        client: &C,
        step: &mut StepContext<'_, C>,
    ) -> Result<Answer, Refusal> {
        self.settle(step);
        self.requeue_silent(claim, client, step)?;
        if let Some(answer) = self.answer_holder(claim, client, step) {
            return Ok(answer);
        }
        if let Some(position) = self.position(claim.id) {
            self.wait_queue_mut().waiting[position].asked_again(claim, client, step.now);
            return Ok(Answer::Waiting(self.hint(position, step.now)));
        }
        if how == How::Ask || step.tombstones.contains(claim.id, step.now) {
            return Ok(Answer::Gone);
        }
        self.create(claim, client, step)
    }

    /// Puts a claim whose pushed grant lapsed back into the queue, at its end. Does nothing for any other claim.
    fn requeue_silent(
        &mut self,
        claim: &Claim,
        client: &C,
        step: &mut StepContext<'_, C>,
    ) -> Result<(), Refusal> {
        let Some(mut waiter) = self.take_silent(claim.id) else { return Ok(()) };
        waiter.asked_again(claim, client, step.now);
        if let Err(refusal) = self.check_mode(waiter.mode) {
            self.wait_queue_mut().silent.push(waiter);
            return Err(refusal);
        }
        self.enqueue(waiter);
        self.settle(step);
        Ok(())
    }

    /// The answer to a claim that is granted: the same grant, extended to the full ttl.
    pub(super) fn answer_holder(
        &mut self,
        claim: &Claim,
        client: &C,
        step: &mut StepContext<'_, C>,
    ) -> Option<Answer> {
        let holder = self.holders.iter_mut().find(|holder| holder.is_of(claim.id))?;
        if holder.is_broken() {
            return Some(Answer::Gone);
        }
        holder.confirm(step.now, claim.ttl);
        holder.client = client.clone();
        // If this very step granted it, the answer already reports it: a notification would repeat it.
        step.pushed.retain(|pushed| pushed.id != claim.id);
        Some(Answer::Held(holder.grant(claim.ttl)))
    }

    /// Creates a claim that has neither a hold nor a queue entry.
    fn create(
        &mut self,
        claim: &Claim,
        client: &C,
        step: &mut StepContext<'_, C>,
    ) -> Result<Answer, Refusal> {
        self.check_mode(claim.mode)?;
        if self.is_queue_empty() && self.tally().fits(claim.mode) {
            let waiter = Waiter::new(claim, client, step.now);
            let pushed = false;
            return Ok(Answer::Held(self.grant_to(waiter, claim.ttl, pushed, step)));
        }
        if !claim.may_queue {
            return Ok(Answer::Taken(self.hint_without_entry(step.now)));
        }
        if self.waiters() >= MAX_WAITERS {
            return Err(Refusal::QueueFull);
        }
        self.enqueue(Waiter::new(claim, client, step.now));
        let position = self.wait_queue_mut().waiting.len() - 1;
        Ok(Answer::Waiting(self.hint(position, step.now)))
    }

    /// Refuses a mode that can never be granted, or that conflicts with the claims of the name.
    fn check_mode(&self, asked: Mode) -> Result<(), Refusal> {
        if let Mode::Permits { count, limit } = asked
            && !(1..=limit).contains(&count)
        {
            return Err(Refusal::Impossible(asked));
        }
        let held_modes = self.holders.iter().map(|holder: &Holder<C>| holder.mode);
        let waiting_modes =
            self.wait_queue.iter().flat_map(|wait_queue| wait_queue.waiting.iter().map(|waiter| waiter.mode));
        // These modes are all of one kind, because each was checked against the others: comparing `asked` with the
        // first mode is enough.
        match held_modes.chain(waiting_modes).next() {
            Some(found) if !found.same_kind(asked) => Err(Refusal::Clash { asked, found }),
            _ => Ok(()),
        }
    }
}

//! Conversions of a hold: exclusive to shared, and shared to exclusive.

use std::time::Duration;

use super::{LockState, StepContext, entry::Waiter};
use crate::{Answer, Claim, ClaimId, Loss, Mode, Previous, Token, Upgraded};

impl<C: Clone> LockState<C> {
    /// Makes an exclusive hold shared, extends it to `ttl` from now, and grants the name to the readers at the head of
    /// the queue. A hold that is shared already is only extended.
    ///
    /// # Errors
    /// Why the claim does not hold the name with this token any more.
    pub fn downgrade(
        &mut self,
        id: ClaimId,
        token: Token,
        ttl: Duration,
        step: &mut StepContext<'_, C>,
    ) -> Result<(), Loss> {
        self.renew(id, token, ttl, step)?;
        let exclusive = |mode| mode == Mode::Exclusive;
        if let Some(holder) =
            self.holders.iter_mut().find(|holder| holder.is_of(id) && exclusive(holder.mode))
        {
            holder.mode = Mode::Shared;
            // What was written under the hold is whole: its holder goes on to read it.
            self.record_end(token, Previous::Clean, step.now);
            self.settle(step);
        }
        Ok(())
    }

    /// Replaces the shared hold of claim `id` by an exclusive one of `claim`, if no other claim holds the name or waits
    /// for it. A repeated request gets the same grant.
    pub fn upgrade(
        &mut self,
        id: ClaimId,
        token: Token,
        claim: &Claim,
        client: &C,
        step: &mut StepContext<'_, C>,
    ) -> Upgraded {
        self.settle(step);
        match self.answer_holder(claim, client, step) {
            Some(Answer::Held(grant)) => return Upgraded::Held(grant),
            Some(_) => return Upgraded::Lost(Loss::Broken),
            None => {}
        }
        let is_upgraded = |holder: &super::Holder<C>| {
            holder.is_of(id) && holder.token == token && holder.mode == Mode::Shared
        };
        let Some(index) = self.holders.iter().position(is_upgraded) else {
            return Upgraded::Lost(Loss::Gone);
        };
        if self.holders[index].is_broken() {
            return Upgraded::Lost(Loss::Broken);
        }
        let is_ended = step.tombstones.contains(claim.id, step.now);
        if is_ended || self.holders.len() > 1 || !self.is_queue_empty() {
            return Upgraded::Taken;
        }
        self.holders.remove(index);
        step.add_tombstone(id);
        let pushed = false;
        Upgraded::Held(self.grant_to(Waiter::new(claim, client, step.now), claim.ttl, pushed, step))
    }
}

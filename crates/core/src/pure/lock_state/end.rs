//! Renewals, and the ways in which holds end.

use std::time::Duration;

use super::{LockState, StepContext, entry::HoldState};
use crate::{ClaimId, Loss, Previous, Release, Token};

/// A hold that was broken, and the client to notify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenHold<C> {
    /// The claim.
    pub id: ClaimId,
    /// Its client; `None` if the name was only blocked by a minimum hold time.
    pub client: Option<C>,
}

impl<C: Clone> LockState<C> {
    /// Extends a hold to `ttl` from now; this confirms a pushed grant.
    ///
    /// # Errors
    /// Why the claim does not hold the name with this token any more.
    pub fn renew(
        &mut self,
        id: ClaimId,
        token: Token,
        ttl: Duration,
        step: &mut StepContext<'_, C>,
    ) -> Result<(), Loss> {
        self.settle(step);
        let held = self.holders.iter_mut().find(|holder| holder.is_of(id) && holder.token == token);
        let holder = held.ok_or(Loss::Gone)?;
        if holder.is_broken() {
            return Err(Loss::Broken);
        }
        holder.confirm(step.now, ttl);
        Ok(())
    }

    /// Removes every trace of a claim. False if nothing of the claim was there; for a release with a token, false if
    /// the hold with that token was not there.
    pub fn release(&mut self, release: &Release, step: &mut StepContext<'_, C>) -> bool {
        // Not `settle`: it might grant to the very claim that is leaving.
        self.prune(step);
        let freed = match self.holders.iter().position(|holder| holder.is_of(release.id)) {
            Some(index) => self.end_hold(index, release, step),
            // A release with a token is meant for a hold, and here that hold has lapsed. The queue entry of the claim
            // is removed, too, but the answer is that the hold was not there.
            None => self.remove_waiter(release.id) && release.token.is_none(),
        };
        step.add_tombstone(release.id);
        self.settle(step);
        freed
    }

    /// Ends the hold whose block of tokens contains `number`, if there is one. Without `force` the name stays taken
    /// until its holder releases it or its lease ends.
    pub fn break_hold(
        &mut self,
        number: u64,
        force: bool,
        step: &mut StepContext<'_, C>,
    ) -> Option<BrokenHold<C>> {
        self.prune(step);
        let index = self.holders.iter().position(|holder| holder.carries(number));
        let broken = index.map(|index| self.break_at(index, force, step));
        self.settle(step);
        broken
    }

    /// Takes back a pushed grant that was not delivered because its client is gone: no client knows of the grant. Then
    /// grants the name to the next claim in the queue.
    pub fn take_back_undelivered(&mut self, id: ClaimId, step: &mut StepContext<'_, C>) {
        self.holders.retain(|holder| !(holder.id == id && matches!(holder.state, HoldState::Pushed(_))));
        self.settle(step);
    }

    /// Breaks the hold at this index of the holders.
    fn break_at(&mut self, index: usize, force: bool, step: &mut StepContext<'_, C>) -> BrokenHold<C> {
        let holder = &mut self.holders[index];
        let (id, token) = (holder.id, holder.token);
        if matches!(holder.state, HoldState::MinHold) {
            self.holders.remove(index);
            return BrokenHold { id, client: None };
        }
        let client = Some(holder.client.clone());
        if force {
            self.holders.remove(index);
            self.record_end(token, Previous::Broken, step.now);
            step.add_tombstone(id);
        } else {
            holder.state = HoldState::Broken;
        }
        BrokenHold { id, client }
    }

    /// Ends the hold at this index of the holders; true if the release names this hold. A hold with another token than
    /// the named one is ended, too: it was granted to a late request of the claim, no client knows of it, and nothing
    /// else would end it.
    fn end_hold(&mut self, index: usize, release: &Release, step: &mut StepContext<'_, C>) -> bool {
        let holder = &mut self.holders[index];
        let (token, is_broken) = (holder.token, holder.is_broken());
        let is_named = release.token.is_none_or(|named| named == token);
        match release.min_hold {
            Some(min_hold) if is_named && !is_broken => {
                holder.state = HoldState::MinHold;
                holder.expires = step.now.after(min_hold);
                self.earliest_expiry = self.earliest_expiry.min(holder.expires);
            }
            _ => drop(self.holders.remove(index)),
        }
        if is_broken {
            self.record_end(token, Previous::Broken, step.now);
        } else if release.token == Some(token) {
            self.record_end(token, release.ended, step.now);
        }
        // In all other cases the claim never learned of its hold, so no work was done under it.
        is_named
    }
}

//! A hold of this process is converted: what the local state permits, and what an answer of the engine changes in it.

use std::sync::Arc;

use super::{
    deliver::{Arrival, token_went_back_error},
    grant::Delivery,
    state::{LocalHold, Terms},
};
use crate::{
    Claim, ClaimId, Error, ErrorKind, Grant, Guard, Hold, Instant, Loss, Mode, Name, Token,
    driver::shared::Shared, driver::validity::Validity, pure::lease,
};

/// A conversion that the local state permits, and that is not decided yet.
pub(crate) struct BegunConversion {
    /// The hold before the conversion.
    pub(crate) hold: Hold,
    /// For an upgrade: the claim that takes the place of the hold.
    pub(crate) new_claim: Option<NewClaim>,
    /// For an upgrade: the hold may still be exclusive on the engine, because an earlier downgrade was not answered.
    pub(crate) is_downgrade_unsettled: bool,
}

/// The claim of an upgrade.
pub(crate) struct NewClaim {
    pub(crate) claim: Claim,
    /// The newest token of the name that was known before the claim was sent.
    pub(crate) newest_before: Option<Token>,
}

impl Shared {
    /// Begins to convert the hold of `guard`, whose mode fits. Until the conversion is settled, no other guard of this
    /// process joins the hold. The hold is renewed as before, but a loss that a renewal finds is asked again
    /// afterwards.
    pub(crate) fn begin_conversion(&self, guard: &Guard, to: Mode) -> Result<BegunConversion, Error> {
        let (name, now) = (guard.name(), self.now());
        let mut shard = self.table.shard(name);
        let state = shard.get_mut(name);
        let others_wait = state.as_ref().is_some_and(|state| !state.queue.is_empty());
        let hold = state.and_then(|state| state.hold(guard.id()));
        let live = |hold: &&mut LocalHold| !hold.is_ending && hold.lease.lost().is_none();
        let Some(hold) = hold.filter(live) else { return Err(guard.lost_error(&Loss::Gone.into())) };
        if hold.is_converting {
            return Err(self.unsettled_conversion_error(name, "converted"));
        }
        let is_other =
            |other: &Arc<Validity>| !Arc::ptr_eq(other, &guard.validity) && !other.is_loss_reported();
        let has_others = hold.guards.iter().any(is_other);
        let from = hold.terms.mode;
        let new_claim = if to == Mode::Shared {
            if has_others {
                let message = "its owner has entered the hold again: release the inner guards first";
                return Err(self.conversion_error(ErrorKind::Invalid, name, message));
            }
            None
        } else {
            if from != Mode::Shared {
                let message =
                    "it shares an exclusive hold of its owner: release it, and acquire the name anew";
                return Err(self.conversion_error(ErrorKind::Invalid, name, message));
            }
            if has_others || others_wait {
                return Err(self.upgrade_taken(name));
            }
            let terms = Terms { mode: to, ..hold.terms.clone() };
            let (may_queue, more_requests_wait) = (false, false);
            let claim = self.new_claim(name, &terms, may_queue, more_requests_wait);
            Some(NewClaim { claim, newest_before: self.newest_tokens.newest(name) })
        };
        hold.is_converting = true;
        let is_downgrade_unsettled = hold.is_downgrade_unsettled;
        Ok(BegunConversion { hold: hold.as_hold(name, now), new_claim, is_downgrade_unsettled })
    }

    /// The engine made the hold of `guard` shared, by a request that was sent at `sent_at`, for this time. Readers of
    /// this process join the hold.
    ///
    /// # Errors
    /// If the hold was lost meanwhile.
    pub(crate) fn apply_downgrade(
        self: &Arc<Self>,
        guard: &mut Guard,
        sent_at: Instant,
        ttl: Option<std::time::Duration>,
    ) -> Result<(), Error> {
        let group = self.engine.group(&guard.name);
        self.share(guard, |hold, now| hold.lease.renewed(sent_at, now, ttl, group));
        match guard.validity.loss_report(self.now()) {
            Some(report) => Err(guard.lost_error(&report)),
            None => Ok(()),
        }
    }

    /// It is unknown whether the engine made the hold of `guard` shared: here it counts as shared. The downgrade is
    /// repeated with each renewal until it is answered, or by the next conversion.
    pub(crate) fn count_as_shared(self: &Arc<Self>, guard: &mut Guard) {
        self.share(guard, |hold, _| {
            hold.is_downgrade_unsettled = true;
            if hold.lease.is_renewed() {
                hold.lease.renew_now();
            }
        });
    }

    fn share(self: &Arc<Self>, guard: &mut Guard, renew: impl FnOnce(&mut LocalHold, Instant)) {
        let (name, id, token) = (guard.name.clone(), guard.id, guard.token());
        guard.mode = Mode::Shared;
        let converted = (&guard.validity, token, Mode::Exclusive);
        self.settle_conversion(&name, id, Some(converted), |hold, now| {
            hold.terms.mode = Mode::Shared;
            hold.is_downgrade_unsettled = false;
            renew(hold, now);
        });
    }

    /// The engine gave the name to the claim of an upgrade, by a request that was sent at `sent_at`.
    ///
    /// # Errors
    /// If the grant cannot be used: then the hold is lost, and the claim is undone.
    pub(crate) fn apply_upgrade(
        self: &Arc<Self>,
        guard: &mut Guard,
        new_claim: &NewClaim,
        grant: &Grant,
        sent_at: Instant,
    ) -> Result<(), Error> {
        let NewClaim { claim, newest_before } = new_claim;
        let (name, old_id, old_token, now) = (guard.name.clone(), guard.id, guard.token(), self.now());
        let is_older = grant.token.lineage == old_token.lineage && grant.token.number <= old_token.number;
        if is_older || self.token_went_back(&name, *newest_before, grant) {
            self.mark_lost(&name, old_id, Loss::TokenWentBack);
            self.undo(claim);
            return Err(token_went_back_error(&name));
        }
        let is_over = grant.ttl.is_some_and(|ttl| lease::deadline(sent_at, ttl) <= now);
        let loss = guard.validity.loss(now).or(is_over.then_some(Loss::Lapsed));
        if let Some(loss) = loss {
            self.mark_lost(&name, old_id, loss);
            self.undo(claim);
            return Err(guard.lost_error(&guard.validity.loss_report(now).unwrap_or(loss.into())));
        }
        guard.previous = guard.previous.worse_of(grant.previous);
        guard.mode = claim.mode;
        let converted = (&guard.validity, grant.token, Mode::Shared);
        let was_there = self.settle_conversion(&name, old_id, Some(converted), |hold, now| {
            let terms = Terms { mode: claim.mode, ..hold.terms.clone() };
            let mut new = self.new_hold(claim.id, &terms, grant, Arrival::Answered(sent_at), now);
            let _ = new.take_token();
            new.guards = std::mem::take(&mut hold.guards);
            (new.min_hold_until, new.ended, new.timer) = (hold.min_hold_until, hold.ended, hold.timer);
            *hold = new;
        });
        if !was_there {
            self.undo(claim);
            return Err(guard.lost_error(&Loss::Gone.into()));
        }
        guard.id = claim.id;
        if let Some(max_hold) = &mut guard.max_hold {
            self.timers.remove(max_hold.timer);
            let left = guard.validity.max_hold_end().since(now);
            max_hold.timer = self.limit_timer(&name, claim.id, left, now).timer;
        }
        Ok(())
    }

    /// The engine answered the downgrade of a hold that counts as shared.
    pub(crate) fn settle_downgrade(&self, name: &Name, id: ClaimId) {
        let mut shard = self.table.shard(name);
        if let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) {
            hold.is_downgrade_unsettled = false;
        }
    }

    /// The conversion changed nothing.
    pub(crate) fn end_conversion(self: &Arc<Self>, name: &Name, id: ClaimId) {
        self.settle_conversion(name, id, None, |_, _| {});
    }

    /// Ends the conversion of a hold by `change`, and lets the waiting requests of this process have what they can have
    /// now. `converted`: the validity and the token of the guard now, and the mode before; a guard whose loss was
    /// reported counts as it was. False if the hold is not there any more.
    fn settle_conversion(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        converted: Option<(&Arc<Validity>, Token, Mode)>,
        change: impl FnOnce(&mut LocalHold, Instant),
    ) -> bool {
        let mut deliveries = Vec::new();
        let mut shard = self.table.shard(name);
        let Some(state) = shard.get_mut(name) else { return false };
        let Some(index) = state.holds.iter().position(|hold| hold.id == id) else { return false };
        let now = self.now();
        let mut hold = state.holds.swap_remove(index);
        hold.is_converting = false;
        change(&mut hold, now);
        if std::mem::take(&mut hold.is_loss_unsure) {
            hold.lease.renew_now();
        }
        if hold.lease.is_in_doubt() {
            // A renewal that was sent before may have been answered before a late upgrade ended the hold.
            hold.lease.doubt(now);
        }
        hold.guards.iter().for_each(|validity| validity.copy_ends(&hold.lease));
        let mode = hold.terms.mode;
        // Under the lock of the shard, as the report of a loss: so no observer counts the end of a guard in one mode,
        // and its conversion after that.
        let converted = converted.filter(|(validity, ..)| !validity.is_loss_reported());
        if let Some((validity, token, _)) = converted {
            validity.convert(token, mode);
        }
        if hold.lease.lost().is_none() {
            self.join_readers(name, state, &mut hold, &mut deliveries, now);
            self.join_owners(name, &mut state.queue, &mut hold, &mut deliveries, now);
        }
        self.set_lease_timer(name, &mut hold, now);
        state.holds.push(hold);
        // The head may have a claim in flight that waits behind this hold.
        let prepared = self.fit_claim_to_head(name, state);
        drop(shard);
        if let Some((_, token, from)) = converted {
            self.observer.converted(name, (token, mode), from);
        }
        deliveries.into_iter().for_each(Delivery::send);
        self.start_claim(prepared);
        true
    }

    /// Puts a hold in doubt whose upgrade may still be applied: it is not valid until the engine has confirmed it after
    /// the end of the conversion. Until then renewals only keep the hold alive.
    pub(crate) fn doubt_conversion(self: &Arc<Self>, name: &Name, id: ClaimId) {
        let mut shard = self.table.shard(name);
        let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return };
        let now = self.now();
        hold.lease.doubt(now);
        hold.guards.iter().for_each(|validity| validity.copy_ends(&hold.lease));
        if !hold.is_ending {
            self.set_lease_timer(name, hold, now);
        }
    }

    /// Whether this process has the hold, and does not release it.
    pub(crate) fn is_in_use(&self, name: &Name, id: ClaimId) -> bool {
        let mut shard = self.table.shard(name);
        shard.get_mut(name).and_then(|state| state.hold(id)).is_some_and(|hold| !hold.is_ending)
    }

    /// Whether the hold is being converted. Then a report of its loss may be about the hold before the conversion: it
    /// is noted, and the engine is asked again after the conversion.
    pub(crate) fn is_converting(&self, name: &Name, id: ClaimId) -> bool {
        let mut shard = self.table.shard(name);
        let Some(hold) = shard.get_mut(name).and_then(|state| state.hold(id)) else { return false };
        hold.is_loss_unsure |= hold.is_converting;
        hold.is_converting
    }

    /// Whether the hold is still the one that this renewal was for: it was not converted meanwhile.
    pub(crate) fn is_renewed_as(&self, renewed: &Hold) -> bool {
        let mut shard = self.table.shard(&renewed.name);
        let hold = shard.get_mut(&renewed.name).and_then(|state| state.hold(renewed.id));
        let Some(hold) = hold else { return true };
        hold.is_loss_unsure |= hold.is_converting;
        !hold.is_converting && hold.terms.mode == renewed.mode
    }

    /// The error for an upgrade of a name that others hold or want.
    pub(crate) fn upgrade_taken(&self, name: &Name) -> Error {
        let message = "others hold it too, or wait for it: release it, and acquire the name anew";
        self.conversion_error(ErrorKind::Taken, name, message)
    }

    /// The error for a request about a hold whose conversion is not settled. `what` the hold is not: converted, for
    /// example.
    pub(crate) fn unsettled_conversion_error(&self, name: &Name, what: &str) -> Error {
        let (engine, name_text) = (self.profile.engine, name.as_str());
        let why = "an earlier conversion of this hold is not settled yet: try again later";
        let message = format!("{engine} lock {name_text:?}: not {what}: {why}");
        Error::new(ErrorKind::Unknown, message).of_name(name)
    }

    /// The error for a hold that was not converted.
    pub(crate) fn conversion_error(&self, kind: ErrorKind, name: &Name, reason: &str) -> Error {
        let (engine, name_text) = (self.profile.engine, name.as_str());
        Error::new(kind, format!("{engine} lock {name_text:?}: not converted: {reason}")).of_name(name)
    }
}

//! Holds that outlast their guards: a guard leaves its hold to a handle, and a hold is resumed from a handle.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    deliver::Arrival,
    grant::{Requester, report_grant},
    release::unanswered_release,
    state::{LocalHold, Terms},
};
use crate::{
    ClaimId, Error, ErrorKind, Grant, Guard, Handle, Instant, Loss, Name, Previous, Release,
    driver::keeper::{Cleanup, KeeperJob},
    driver::shared::{Shared, SharedHandle},
    driver::validity::LossReport,
    pure::lease,
};

impl Shared {
    /// The number of the first token of a hold, by which the engine recognises it, and the lease time that was asked
    /// for; `None` if no guard of this process has the hold. From now on the hold is not handed over, and no request
    /// joins it: a handle would name the hold of the next guard, too. A guard of the same owner still enters it.
    pub(crate) fn fix_to_handle(&self, name: &Name, id: ClaimId) -> Option<(u64, Duration)> {
        let mut shard = self.table.shard(name);
        let hold = shard.get_mut(name)?.hold(id)?;
        hold.tokens_left = 0;
        Some((hold.first_token.number, hold.terms.ttl))
    }

    /// Forgets the hold of a guard, its only one, without a request to the engine: the hold stays there until its lease
    /// ends.
    ///
    /// # Errors
    /// If the hold has other guards in this process, which would lose it, is lost, or is not certainly held in its
    /// mode.
    pub(crate) fn leave_hold(self: &Arc<Self>, guard: &Guard) -> Result<(), Error> {
        let (name, id, validity) = (&guard.name, guard.id, &guard.validity);
        let lost = |report: &LossReport| Err(guard.lost_error(report));
        let invalid =
            |what| Error::invalid(format!("lock {:?}: no handle: {what}", name.as_str())).of_name(name);
        let mut shard = self.table.shard(name);
        // Under the lock: no loss can be reported until the hold is forgotten.
        let now = self.now();
        if let Some(report) = validity.loss_report(now) {
            return lost(&report);
        }
        if now >= validity.deadline() {
            let message = format!("the hold of {:?} is in doubt: confirm it first", name.as_str());
            return Err(Error::new(ErrorKind::Unknown, message).of_name(name));
        }
        let Some(state) = shard.get_mut(name) else { return lost(&Loss::Gone.into()) };
        let index = state.holds.iter().position(|hold| hold.id == id);
        let Some(index) = index else { return lost(&Loss::Gone.into()) };
        let hold = &state.holds[index];
        if hold.guards.iter().any(|other| !Arc::ptr_eq(other, validity) && !other.is_loss_reported()) {
            return Err(invalid("other guards of this process share the hold: release them first"));
        }
        if hold.is_converting || hold.is_downgrade_unsettled {
            return Err(invalid("a conversion of the hold is not settled: confirm the guard first"));
        }
        if let Some(timer) = hold.timer {
            self.timers.remove(timer);
        }
        state.holds.swap_remove(index);
        // A request of this process may wait for the name: it has to wait on the engine now.
        let prepared = self.prepare_next_claim(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        drop(shard);
        self.start_claim(prepared);
        Ok(())
    }

    /// Makes the guard of a hold that the engine has confirmed for `grant.ttl` by a request that was sent at `sent_at`.
    ///
    /// # Errors
    /// If the lease has run out meanwhile, or a guard of this process has the hold.
    pub(crate) fn resume_hold(
        self: &Arc<Self>,
        shared_handle: &Arc<SharedHandle>,
        handle: &Handle,
        terms: &Terms,
        grant: &Grant,
        sent_at: Instant,
    ) -> Result<Guard, Error> {
        let (name, now) = (handle.name(), self.now());
        if grant.ttl.is_some_and(|ttl| lease::deadline(sent_at, ttl) <= now) {
            let message = format!("the answer about {:?} arrived after its lease had run out", name.as_str());
            return Err(Error::new(ErrorKind::Unknown, message).of_name(name));
        }
        let mut shard = self.table.shard(name);
        self.check_open()?;
        let state = shard.entry(name.clone()).or_default();
        if state.hold(handle.id()).is_some() {
            return Err(already_here(name));
        }
        let mut hold: LocalHold = self.new_hold(handle.id(), terms, grant, Arrival::Answered(sent_at), now);
        // How many tokens of its block the hold has used before is not known, so it is not handed over.
        hold.tokens_left = 0;
        let requester = Requester { handle: shared_handle, terms, max_hold: None, of_set: false };
        let guard = self.new_guard(name, &mut hold, &requester, handle.token(), Previous::Unknown, now);
        self.set_lease_timer(name, &mut hold, now);
        state.holds.push(hold);
        drop(shard);
        report_grant(&guard, None, Duration::ZERO, false, false);
        Ok(guard.received())
    }

    /// Releases the hold of a handle, which no guard of this process has. Returns the result of the release.
    /// `patience`: for how long it is sent again while the engine does not answer.
    pub(crate) async fn release_handle(
        self: &Arc<Self>,
        handle: &Handle,
        patience: Duration,
    ) -> Result<(), Error> {
        self.ensure_served()?;
        let (id, name, mode) = (handle.id(), handle.name().clone(), handle.mode());
        let token = Some(handle.grant_token());
        let release = Release { id, name, mode, token, ended: Previous::Clean, min_hold: None };
        let (reply, answer) = oneshot::channel();
        // Until when the hold lasts is not known. So an answer to a repeated release says nothing about the first one.
        let now = self.now();
        let cleanup = Cleanup::new(self, release, handle.ttl()).for_hold(now, now.after(patience), reply);
        self.queue_job(KeeperJob::Release(cleanup));
        answer.await.unwrap_or_else(|_| Err(unanswered_release(handle.name())))
    }

    /// Whether a guard of this process has the hold of this claim.
    pub(crate) fn has_hold(&self, name: &Name, id: ClaimId) -> bool {
        let mut shard = self.table.shard(name);
        shard.get_mut(name).is_some_and(|state| state.hold(id).is_some())
    }
}

/// The error if a hold is resumed that this process has.
pub(crate) fn already_here(name: &Name) -> Error {
    Error::invalid(format!("lock {:?}: a guard of this process has the hold of this handle", name.as_str()))
        .of_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Env, Locks,
        memory::{MemoryEngine, MemoryStore},
    };

    /// The keeper may report the loss while the guard is about to leave the hold.
    #[test]
    fn a_hold_that_was_just_lost_is_not_left() {
        let env = Env::system();
        let store = MemoryStore::new(env.lineage(), Arc::clone(&env.clock));
        let locks = Locks::builder(Arc::new(MemoryEngine::new(store))).env(env).build();
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        let shared = Arc::clone(guard.shared_handle());
        shared.mark_lost(&guard.name, guard.id, Loss::Broken);
        assert!(shared.leave_hold(&guard).unwrap_err().is_lost());
        // The hold is forgotten, and no loss was reported to the guard.
        let guard = locks.mutex("y").blocking().acquire().unwrap();
        shared.table.shard(&guard.name).remove(&guard.name);
        assert!(shared.leave_hold(&guard).unwrap_err().is_lost());
    }
}

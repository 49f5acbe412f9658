//! A guard is released: its hold goes to the next request of this process, or back to the engine.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    grant::Delivery,
    state::{Ending, LocalHold, NameState},
};
use crate::{
    ClaimId, Error, ErrorKind, Instant, Loss, Name, Previous, Release, Released,
    contract::observe::Verb,
    driver::keeper::{Cleanup, KeeperJob, released_at_once, run_cleanups},
    driver::shared::Shared,
    driver::validity::{LossReport, Validity},
};

/// The outcome of a release.
pub(crate) enum ReleaseOutcome {
    /// The result is known already.
    Done(Result<(), Error>),
    /// The release is with the keeper, which sends the engine's answer here.
    Sent(oneshot::Receiver<Result<(), Error>>),
}

/// The release of one guard.
pub(crate) struct GuardRelease<'a> {
    pub(crate) name: &'a Name,
    pub(crate) id: ClaimId,
    /// The validity of the guard. It identifies the guard among those of its hold.
    pub(crate) validity: &'a Arc<Validity>,
    /// How the guard ended.
    pub(crate) ending: Ending,
    /// When the guard ended.
    pub(crate) now: Instant,
}

impl Shared {
    /// Releases one guard. Never waits: requests to a server are left to the keeper.
    pub(crate) fn release_guard(self: &Arc<Self>, guard_release: &GuardRelease<'_>) -> ReleaseOutcome {
        let GuardRelease { name, id, validity, ending, now } = *guard_release;
        let mut shard = self.table.shard(name);
        let (loss_report, has_events) = (validity.loss_report(now), !validity.is_withheld());
        let Some(state) = shard.get_mut(name) else {
            return ReleaseOutcome::Done(release_result(name, loss_report));
        };
        let Some(hold_index) = state.holds.iter().position(|hold| hold.id == id) else {
            return ReleaseOutcome::Done(release_result(name, loss_report));
        };
        let hold = &mut state.holds[hold_index];
        // A guard whose loss was reported, by its own `max_hold`, may exist for long, but no longer uses the hold (R6).
        hold.guards.retain(|other| !Arc::ptr_eq(other, validity) && !other.is_loss_reported());
        hold.min_hold_until = hold.min_hold_until.max(ending.min_hold_until);
        hold.ended = hold.ended.worse_of(ending.ended);
        if !hold.guards.is_empty() {
            // I10: the engine is not asked, so a hold that may have ended there cannot be reported as held until now.
            let is_doubted = loss_report.is_none() && validity.is_in_doubt();
            return ReleaseOutcome::Done(if is_doubted {
                Err(in_doubt_error(name))
            } else {
                release_result(name, loss_report)
            });
        }
        if loss_report.is_none()
            && let Some(delivery) = self.hand_over(name, state, hold_index, now)
        {
            // The request that got the hold may have a claim in flight, made before a try of this process was granted
            // the hold.
            let prepared = self.fit_claim_to_head(name, state);
            drop(shard);
            delivery.into_iter().for_each(Delivery::send);
            self.start_claim(prepared);
            return ReleaseOutcome::Done(Ok(()));
        }
        let hold = &mut state.holds[hold_index];
        hold.is_ending = true;
        hold.lease.stop_renewal();
        // R3: a hold in doubt may have ended before its deadline.
        let deadline = hold.lease.valid_until();
        let ttl = hold.lease.longest_time(now).max(hold.terms.ttl);
        if let Some(timer) = hold.timer.take() {
            self.timers.remove(timer);
        }
        let mut release = engine_release(name, hold, now);
        // Where the engine cannot block the name, the keeper has already held it for the minimum hold time, unless the
        // hold was lost.
        release.min_hold = release.min_hold.filter(|_| self.profile.supports_min_hold);
        if self.profile.inline {
            drop(shard);
            return self.release_inline(release, deadline, ttl, loss_report, has_events);
        }
        state.holds.swap_remove(hold_index);
        let prepared = self.prepare_next_claim(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        drop(shard);
        let cleanup = Cleanup::new(self, release, ttl);
        let outcome = if has_events {
            self.leave_to_keeper(cleanup, deadline, loss_report)
        } else {
            // No user had the hold: nobody waits for the answer.
            self.queue_job(KeeperJob::Release(cleanup));
            ReleaseOutcome::Done(release_result(name, loss_report))
        };
        self.start_claim(prepared);
        outcome
    }

    /// Hands the hold over to the head of the local queue. Returns `None` if the head cannot have it, or if the hold
    /// has reached the bound on hand-overs that keeps other processes from starving.
    fn hand_over(
        self: &Arc<Self>,
        name: &Name,
        state: &mut NameState,
        hold_index: usize,
        now: Instant,
    ) -> Option<Vec<Delivery>> {
        let hold = &mut state.holds[hold_index];
        let has_min_hold = hold.min_hold_until.is_some();
        let waiter =
            state.queue.take_head_if(|head| !has_min_hold && hold.can_hand_over(&head.terms, now))?;
        hold.terms = waiter.terms.clone();
        let ended = std::mem::replace(&mut hold.ended, Previous::Clean);
        let handed_over = true;
        let mut deliveries: Vec<Delivery> =
            self.prepare_delivery(name, hold, waiter, ended, handed_over, now).into_iter().collect();
        if !state.queue.is_empty() {
            let mut hold = state.holds.swap_remove(hold_index);
            self.join_readers(name, state, &mut hold, &mut deliveries, now);
            self.join_owners(name, &mut state.queue, &mut hold, &mut deliveries, now);
            state.holds.push(hold);
        }
        Some(deliveries)
    }

    /// Releases on this thread, then starts the claim of the next request in the local queue. `has_events`: observers
    /// get an event if the engine answers that the hold was gone.
    pub(super) fn release_inline(
        self: &Arc<Self>,
        release: Release,
        deadline: Instant,
        ttl: std::time::Duration,
        loss_report: Option<LossReport>,
        has_events: bool,
    ) -> ReleaseOutcome {
        let observed = self.observed_now();
        let released = released_at_once(self.engine.release(std::slice::from_ref(&release)));
        self.report_answer(Verb::Release, observed, released.as_ref().and_then(Released::fault));
        let mut prepared = None;
        {
            let mut shard = self.table.shard(&release.name);
            if let Some(state) = shard.get_mut(&release.name) {
                state.holds.retain(|hold| hold.id != release.id);
                prepared = self.prepare_next_claim(&release.name, state);
                if state.is_idle() {
                    shard.remove(&release.name);
                }
            }
        }
        let outcome = match released {
            Some(Released::Freed) => ReleaseOutcome::Done(release_result(&release.name, loss_report)),
            Some(Released::NotThere) => {
                if loss_report.is_none() && has_events {
                    self.report_loss_at_release(&release);
                }
                ReleaseOutcome::Done(release_result(&release.name, loss_report.or(Some(Loss::Gone.into()))))
            }
            Some(Released::Unknown(_)) | None => {
                self.leave_to_keeper(Cleanup::new(self, release, ttl).already_sent(), deadline, loss_report)
            }
        };
        self.start_claim(prepared);
        outcome
    }

    /// Passes a release to the keeper. R5: if the hold is known to be lost, the outcome is decided without the answer
    /// of the server; what is left on the server is removed all the same.
    fn leave_to_keeper(
        self: &Arc<Self>,
        cleanup: Cleanup,
        deadline: Instant,
        loss_report: Option<LossReport>,
    ) -> ReleaseOutcome {
        if loss_report.is_some() {
            let outcome = release_result(cleanup.name(), loss_report);
            self.queue_job(KeeperJob::Release(cleanup));
            return ReleaseOutcome::Done(outcome);
        }
        let (reply, answer) = oneshot::channel();
        let cleanup = cleanup.for_hold(deadline, deadline, reply);
        // The cleanup itself counts as pending.
        if self.may_start_on_caller(1) {
            self.start_on_caller(run_cleanups(Arc::clone(self), vec![cleanup]));
        } else {
            self.queue_job(KeeperJob::Release(cleanup));
        }
        ReleaseOutcome::Sent(answer)
    }

    /// Reports to the observers that the hold of this release was gone.
    pub(crate) fn report_loss_at_release(&self, release: &Release) {
        if let Some(token) = release.token {
            self.observer.lost_at_release(&release.name, release.mode, token, Loss::Gone);
        }
    }

    /// Reports a lost hold to its guards, and starts a claim for a local waiter.
    pub(crate) fn mark_lost(self: &Arc<Self>, name: &Name, id: ClaimId, loss: Loss) {
        let (newly_lost, renewal_error, prepared) = {
            let mut shard = self.table.shard(name);
            let Some(state) = shard.get_mut(name) else { return };
            let Some(hold) = state.hold(id) else { return };
            // Its guards may know of the loss already, by their own `max_hold`; that the name is free for waiters is
            // new all the same.
            let newly_lost = hold.mark_lost(loss);
            let renewal_error = hold
                .guards
                .iter()
                .find_map(|validity| validity.renewal_error())
                .filter(|_| loss == Loss::Lapsed);
            if let Some(timer) = hold.timer.take() {
                self.timers.remove(timer);
            }
            (newly_lost, renewal_error, self.prepare_next_claim(name, state))
        };
        self.observer.lost(name, &newly_lost, loss, renewal_error.as_deref());
        self.start_claim(prepared);
    }
}

/// The request to release `hold`.
pub(super) fn engine_release(name: &Name, hold: &LocalHold, now: Instant) -> Release {
    let min_hold = hold.min_hold_until.map(|until| until.since(now)).filter(|min_hold| !min_hold.is_zero());
    Release {
        id: hold.id,
        name: name.clone(),
        mode: hold.terms.mode,
        token: Some(hold.first_token),
        ended: hold.ended,
        min_hold,
    }
}

/// The error for the release of a guard whose hold is in doubt and has other guards.
fn in_doubt_error(name: &Name) -> Error {
    let name_text = name.as_str();
    Error::new(
        ErrorKind::Unknown,
        format!(
            "it is unknown whether {name_text:?} was still held at its release: it was in doubt, because the server's clock was set forward, or the server was replaced or restarted"
        ),
    )
}

/// The error for a release that no keeper will ever answer.
pub(crate) fn unanswered_release(name: &Name) -> Error {
    let name_text = name.as_str();
    Error::new(
        ErrorKind::Unknown,
        format!("the release of {name_text:?} was not answered: its keeper is gone"),
    )
}

/// The result of a release: success, or the error for a hold that was lost before.
pub(crate) fn release_result(name: &Name, loss_report: Option<LossReport>) -> Result<(), Error> {
    match loss_report {
        None => Ok(()),
        Some(loss_report) => Err(Error::new(
            ErrorKind::Lost(loss_report.loss),
            format!("the hold of {:?} was lost before its release: {loss_report}", name.as_str()),
        )),
    }
}

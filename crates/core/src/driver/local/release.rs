//! A guard lets go: the hold goes to the next request of this process, or back to the engine.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    grant::Delivery,
    state::{Ending, LocalHold, NameState},
};
use crate::{
    ClaimId, Error, ErrorKind, Instant, Loss, Name, Previous, Release, Released,
    driver::keeper::{Cleanup, Work, at_once_all, deliver},
    driver::shared::Shared,
    driver::validity::{Lost, Validity},
};

/// What became of a release.
pub(crate) enum LetGo {
    /// It is decided.
    Done(Result<(), Error>),
    /// The engine's answer comes here.
    Sent(oneshot::Receiver<Result<(), Error>>),
}

/// The end of one guard.
pub(crate) struct Parting<'a> {
    pub(crate) name: &'a Name,
    pub(crate) id: ClaimId,
    pub(crate) validity: &'a Arc<Validity>,
    pub(crate) ending: Ending,
    pub(crate) now: Instant,
}

impl Shared {
    /// One guard lets go. Never waits: what needs the engine's server is left to the keeper.
    pub(crate) fn let_go(self: &Arc<Self>, parting: &Parting<'_>) -> LetGo {
        let Parting { name, id, validity, ending, now } = *parting;
        let mut shard = self.table.shard(name);
        let lost = validity.lost(now);
        let Some(state) = shard.get_mut(name) else { return LetGo::Done(truth(name, lost)) };
        let Some(at) = state.holds.iter().position(|hold| hold.id == id) else {
            return LetGo::Done(truth(name, lost));
        };
        let hold = &mut state.holds[at];
        // One that was told its loss, by a `max_hold` of its own, may be kept for long: nobody uses the hold by it (R6).
        hold.guards.retain(|other| !Arc::ptr_eq(other, validity) && !other.is_told());
        hold.keep_until = hold.keep_until.max(ending.keep_until);
        hold.ended = hold.ended.worse(ending.ended);
        if !hold.guards.is_empty() {
            // I10: nobody asks the engine, so what may have ended there was not certainly held until now.
            let is_doubted = lost.is_none() && validity.is_in_doubt();
            return LetGo::Done(if is_doubted { Err(doubted(name)) } else { truth(name, lost) });
        }
        if lost.is_none()
            && let Some(delivery) = self.hand_on(name, state, at, now)
        {
            // Its request may have had a claim under way, from before a try of this process was granted the hold.
            let start = self.realign(name, state);
            drop(shard);
            delivery.into_iter().for_each(Delivery::send);
            self.run(start);
            return LetGo::Done(Ok(()));
        }
        let hold = &mut state.holds[at];
        hold.ending = true;
        hold.lease.stop_renewal();
        // R3: one that is in doubt may have ended before its deadline.
        let deadline = hold.lease.belief();
        let ttl = hold.terms.ttl;
        if let Some(timer) = hold.timer.take() {
            self.timers.remove(timer);
        }
        let mut release = release_of(name, hold, now);
        // What the engine cannot do was done by the keeper, as far as it could be.
        release.keep = release.keep.filter(|_| self.profile.can_keep);
        if self.profile.inline {
            drop(shard);
            return self.release_inline(release, deadline, ttl, lost);
        }
        state.holds.swap_remove(at);
        let start = self.advance(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        drop(shard);
        let outcome = self.leave_to_keeper(Cleanup::new(self, release, ttl), deadline, lost);
        self.run(start);
        outcome
    }

    /// Hands the hold to the head of the line, within the bound that keeps other processes from starving.
    fn hand_on(
        self: &Arc<Self>,
        name: &Name,
        state: &mut NameState,
        at: usize,
        now: Instant,
    ) -> Option<Vec<Delivery>> {
        let hold = &mut state.holds[at];
        let keeps = hold.keep_until.is_some();
        let waiter = state.line.take_head_if(|head| !keeps && hold.can_hand_on(&head.terms, now))?;
        hold.terms = waiter.terms.clone();
        let ended = std::mem::replace(&mut hold.ended, Previous::Clean);
        let mut deliveries: Vec<Delivery> =
            self.deliver(name, hold, waiter, ended, true, now).into_iter().collect();
        if !state.line.is_empty() && state.holds[at].terms.mode == crate::Mode::Shared {
            let mut hold = state.holds.swap_remove(at);
            self.join_readers(name, state, &mut hold, &mut deliveries, now);
            state.holds.push(hold);
        }
        Some(deliveries)
    }

    /// Releases on this thread, then starts the claim of the next one in line.
    fn release_inline(
        self: &Arc<Self>,
        release: Release,
        deadline: Instant,
        ttl: std::time::Duration,
        lost: Option<Lost>,
    ) -> LetGo {
        let released = at_once_all(self.engine.release(std::slice::from_ref(&release)));
        let mut start = None;
        {
            let mut shard = self.table.shard(&release.name);
            if let Some(state) = shard.get_mut(&release.name) {
                state.holds.retain(|hold| hold.id != release.id);
                start = self.advance(&release.name, state);
                if state.is_idle() {
                    shard.remove(&release.name);
                }
            }
        }
        let outcome = match released {
            Some(Released::Freed) => LetGo::Done(truth(&release.name, lost)),
            Some(Released::NotThere) => LetGo::Done(truth(&release.name, lost.or(Some(Loss::Gone.into())))),
            Some(Released::Unknown(_)) | None => {
                self.leave_to_keeper(Cleanup::new(self, release, ttl).sent_before(), deadline, lost)
            }
        };
        self.run(start);
        outcome
    }

    /// R5: a loss that the guard knows of needs no answer of the server; what is left there is cleaned up all the same.
    fn leave_to_keeper(self: &Arc<Self>, cleanup: Cleanup, deadline: Instant, lost: Option<Lost>) -> LetGo {
        if lost.is_some() {
            let outcome = truth(cleanup.name(), lost);
            self.give(Work::Release(cleanup));
            return LetGo::Done(outcome);
        }
        let (reply, answer) = oneshot::channel();
        let cleanup = cleanup.of_hold(deadline, reply);
        // The parcel itself is pending.
        if self.may_begin_here(1) {
            self.begin_here(deliver(Arc::clone(self), vec![cleanup]));
        } else {
            self.give(Work::Release(cleanup));
        }
        LetGo::Sent(answer)
    }

    /// A hold is lost: its guards are told, and a local waiter may claim again.
    pub(crate) fn lose(self: &Arc<Self>, name: &Name, id: ClaimId, loss: Loss) {
        let (notification, trouble, start) = {
            let mut shard = self.table.shard(name);
            let Some(state) = shard.get_mut(name) else { return };
            let Some(hold) = state.hold(id) else { return };
            // Its guards may know already, by their own `max_hold`; that the way is free is news all the same.
            let notification = hold.lose(loss);
            let trouble =
                hold.guards.iter().find_map(|validity| validity.trouble()).filter(|_| loss == Loss::Lapsed);
            if let Some(timer) = hold.timer.take() {
                self.timers.remove(timer);
            }
            (notification, trouble, self.advance(name, state))
        };
        if notification {
            let trouble = trouble.as_deref();
            self.observer.event(&crate::contract::observe::Event::Lost { name, loss, trouble });
        }
        self.run(start);
    }
}

fn release_of(name: &Name, hold: &LocalHold, now: Instant) -> Release {
    let keep = hold.keep_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero());
    Release {
        id: hold.id,
        name: name.clone(),
        mode: hold.terms.mode,
        token: Some(hold.first),
        ended: hold.ended,
        keep,
    }
}

/// A hold that others go on with may have ended on the engine.
fn doubted(name: &Name) -> Error {
    let text = name.as_str();
    Error::new(
        ErrorKind::Unknown,
        format!(
            "nobody knows whether {text:?} was still held at its release: it was in doubt, because the engine's clock went forward, or another server has its locks now, or one that was started anew"
        ),
    )
}

/// Nobody will ever say what became of a release.
pub(crate) fn unheard(name: &Name) -> Error {
    let text = name.as_str();
    Error::new(ErrorKind::Unknown, format!("the release of {text:?} was not answered: its keeper is gone"))
}

/// A release is told the truth: a hold that was lost before was not freed by it.
pub(crate) fn truth(name: &Name, lost: Option<Lost>) -> Result<(), Error> {
    match lost {
        None => Ok(()),
        Some(lost) => Err(Error::new(
            ErrorKind::Lost(lost.loss),
            format!("the hold of {:?} was lost before its release: {lost}", name.as_str()),
        )),
    }
}

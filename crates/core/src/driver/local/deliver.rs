//! The claim for the head of the local queue: starting it, and handling its answers.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use super::{
    grant::Delivery,
    state::{ClaimInFlight, Control, LocalHold, NameState, PreparedClaim, Terms},
};
use crate::{
    Answer, Claim, ClaimId, EngineError, Error, ErrorKind, Fault, Grant, How, Instant, Loss, Mode, Name,
    Release, Token,
    contract::observe::Verb,
    driver::keeper::{KeeperJob, answer_at_once, drive},
    driver::shared::Shared,
    pure::lease::Lease,
};

/// How the process received a grant.
#[derive(Clone, Copy)]
pub(crate) enum Arrival {
    /// From the answer to a request that was sent at this instant.
    Answered(Instant),
    /// By push. The grant did not begin before this instant; it lasts only the claim time unless it is renewed.
    Pushed(Instant),
}

impl Shared {
    /// Prepares a claim for the head of the local queue, unless one is in flight or a hold of this process conflicts
    /// with it.
    #[must_use]
    pub(crate) fn prepare_next_claim(&self, name: &Name, state: &mut NameState) -> Option<PreparedClaim> {
        if state.claim.is_some() || self.is_closed() {
            return None;
        }
        let head = state.queue.head()?;
        if state.conflicts(head.terms.mode) {
            return None;
        }
        let (terms, control) = (head.terms.clone(), Arc::new(Control::new(head.since, head.pace)));
        // A shared hold may be joined by any number of later readers.
        let others_wait = state.queue.has_followers() || terms.mode != Mode::Exclusive;
        let may_queue = true;
        let claim = self.new_claim(name, &terms, may_queue, others_wait);
        let newest_before = self.newest_tokens.newest(name);
        state.claim = Some(Box::new(ClaimInFlight {
            id: claim.id,
            terms,
            control: Arc::clone(&control),
            newest_before,
        }));
        Some(PreparedClaim { claim, control })
    }

    /// Sends the first request of a prepared claim: on this thread if the engine never waits, else through the keeper.
    /// On this thread, a grant is delivered at once, and any other answer is passed on to the keeper.
    pub(crate) fn start_claim(self: &Arc<Self>, prepared: Option<PreparedClaim>) {
        let mut prepared = prepared;
        while let Some(PreparedClaim { claim, control }) = prepared.take() {
            if self.may_start_on_caller(0) {
                return self.start_on_caller(drive(Arc::clone(self), claim, control, None));
            }
            if !self.profile.inline {
                self.queue_job(KeeperJob::Drive { claim, control, first_answer: None });
                return;
            }
            let sent_at = self.now();
            let answer = answer_at_once(self.engine.claim(&claim, How::Create));
            let fault = answer.as_ref().err().map(|error| error.fault);
            self.report_answer(Verb::Claim, self.observer.is_observed().then_some(sent_at), fault);
            match answer {
                Ok(Answer::Held(grant)) => {
                    prepared = self.deliver_grant(&claim, &grant, Arrival::Answered(sent_at))
                }
                answer => {
                    Self::note_last_error(&control, &answer);
                    if let Err(error) = self.keeper.begin() {
                        // No keeper would complete it.
                        self.undo(&claim);
                        return self.fail_head(&claim, error);
                    }
                    return self.queue_job(KeeperJob::Drive {
                        claim,
                        control,
                        first_answer: Some((sent_at, answer)),
                    });
                }
            }
        }
    }

    /// Gives a grant to the head of the local queue, if the head wants a hold with the terms of the claim; else
    /// releases the grant.
    #[must_use]
    pub(crate) fn deliver_grant(
        self: &Arc<Self>,
        claim: &Claim,
        grant: &Grant,
        arrival: Arrival,
    ) -> Option<PreparedClaim> {
        // The guards for the waiters. They are sent when the shard is no longer locked.
        let mut deliveries = Vec::new();
        let mut prepared = None;
        let name = &claim.name;
        let (mut must_undo, mut failed_waiter) = (true, None);
        {
            let mut shard = self.table.shard(name);
            if let Some(state) = shard.get_mut(name)
                && state.claim.as_ref().is_some_and(|in_flight| in_flight.id == claim.id)
            {
                let ClaimInFlight { terms, newest_before, .. } =
                    *state.claim.take().expect("it was there under the same lock");
                if let Some(waiter) = state.queue.take_head_if(|head| head.terms == terms) {
                    if self.token_went_back(name, newest_before, grant) {
                        failed_waiter = Some(waiter);
                    } else {
                        let now = self.now();
                        let mut hold = self.new_hold(claim.id, &terms, grant, arrival, now);
                        let handed_over = false;
                        let delivery =
                            self.prepare_delivery(name, &mut hold, waiter, grant.previous, handed_over, now);
                        deliveries.extend(delivery);
                        self.join_readers(name, state, &mut hold, &mut deliveries, now);
                        self.join_owners(name, &mut state.queue, &mut hold, &mut deliveries, now);
                        self.set_lease_timer(name, &mut hold, now);
                        state.holds.reserve_exact(1);
                        state.holds.push(hold);
                        must_undo = false;
                    }
                }
                prepared = self.prepare_next_claim(name, state);
                if state.is_idle() {
                    shard.remove(name);
                }
            }
        }
        deliveries.into_iter().for_each(Delivery::send);
        if let Some(waiter) = failed_waiter {
            self.fail_request(name, waiter, token_went_back_error(name));
        }
        if must_undo {
            self.undo(claim);
        }
        prepared
    }

    /// Fails the head of the local queue with the error of its claim, and starts a claim for the next request.
    pub(crate) fn refuse_claim(self: &Arc<Self>, claim: &Claim, error: EngineError) {
        self.fail_head(claim, Error::from_engine(error, &claim.name, self.profile.engine));
    }

    /// As [`refuse_claim`](Self::refuse_claim), for an error in the form that users get.
    pub(crate) fn fail_head(self: &Arc<Self>, claim: &Claim, error: Error) {
        let mut prepared = None;
        let mut refused_waiter = None;
        {
            let mut shard = self.table.shard(&claim.name);
            if let Some(state) = shard.get_mut(&claim.name)
                && state.claim.as_ref().is_some_and(|in_flight| in_flight.id == claim.id)
            {
                state.claim = None;
                refused_waiter = state.queue.take_head_if(|_| true);
                prepared = self.prepare_next_claim(&claim.name, state);
                if state.is_idle() {
                    shard.remove(&claim.name);
                }
            }
        }
        if let Some(waiter) = refused_waiter {
            self.fail_request(&claim.name, waiter, error);
        }
        self.start_claim(prepared);
    }

    /// Gives the claim in flight a new id; false if no request waits for this claim any more.
    pub(crate) fn give_new_id(&self, claim: &mut Claim) -> bool {
        let old = claim.id;
        claim.id = ClaimId(self.env.random());
        let newest_before = self.newest_tokens.newest(&claim.name);
        let mut shard = self.table.shard(&claim.name);
        let in_flight = shard.get_mut(&claim.name).and_then(|state| state.claim.as_mut());
        match in_flight {
            Some(in_flight) if in_flight.id == old => {
                (in_flight.id, in_flight.newest_before) = (claim.id, newest_before);
                true
            }
            _ => false,
        }
    }

    /// Removes every trace of a claim that no request waits for.
    pub(crate) fn undo(self: &Arc<Self>, claim: &Claim) {
        self.clean_up(Release::of_unused(claim), claim.ttl);
    }

    /// The local hold for a grant.
    pub(super) fn new_hold(
        &self,
        id: ClaimId,
        terms: &Terms,
        grant: &Grant,
        arrival: Arrival,
        now: Instant,
    ) -> LocalHold {
        let (mut lease, since) = match arrival {
            Arrival::Answered(sent_at) => {
                (Lease::granted(sent_at, grant.ttl, terms.ttl, terms.renewal), sent_at)
            }
            Arrival::Pushed(since) => (Lease::pushed(since, grant.ttl, terms.ttl, terms.renewal), since),
        };
        let last_doubt = Instant::from_nanos(self.last_doubt.load(Ordering::Relaxed));
        if since < last_doubt {
            // The doubt arrived before the answer, by another path or on another thread.
            lease.doubt(last_doubt);
        }
        LocalHold::new(id, terms.clone(), grant, lease, now)
    }

    /// R10: a token that is not larger than a token known before the claim was sent proves that the engine lost state.
    /// Then the caller must reject the grant.
    pub(super) fn token_went_back(&self, name: &Name, newest_before: Option<Token>, grant: &Grant) -> bool {
        let number = grant.token.number.saturating_add(u64::from(grant.tokens.max(1)) - 1);
        !self.newest_tokens.record_if_newer(name, newest_before, grant.token, Token { number, ..grant.token })
    }

    /// Fails a waiting request.
    pub(crate) fn fail_request(&self, name: &Name, waiter: super::state::Waiter, error: Error) {
        if let Some(timer) = waiter.limit_timer {
            self.timers.remove(timer);
        }
        let error = error.of_name(name);
        if waiter.of_set.is_none() {
            waiter.span.in_scope(|| {
                let waited = self.waited_since(waiter.since);
                self.observer.refused(name, waiter.terms.mode, &error, waited);
            });
        }
        // The user may make the next request at once: this one waits no more.
        drop(waiter.counted);
        let _ = waiter.tx.send(Err(error));
    }

    /// Reports the place of the claim in the queue, for the request at the head of the local queue.
    pub(crate) fn report_place(&self, claim: &Claim, ahead: Option<u32>) {
        let span = {
            let mut shard = self.table.shard(&claim.name);
            let Some(state) = shard.get_mut(&claim.name) else { return };
            if state.claim.as_ref().is_none_or(|in_flight| in_flight.id != claim.id) {
                return;
            }
            let Some(head) = state.queue.head_mut() else { return };
            head.contended = true;
            head.span.clone()
        };
        span.in_scope(|| self.observer.queued(&claim.name, claim.mode, ahead));
    }

    /// Remembers the error of a claim's last answer, for requests whose wait ends before the next answer.
    pub(crate) fn note_last_error(control: &Control, answer: &Result<Answer, EngineError>) {
        let last_error = match answer {
            // After `Gone` the request makes a new claim; the error noted before still applies. If the wait ends after
            // a grant, the grant came too late to be delivered: it does not tell that another had the name (I13).
            Ok(Answer::Gone | Answer::Held(_)) => return,
            Ok(Answer::Waiting(hint) | Answer::Taken(hint)) => {
                hint.obstacle.map(|obstacle| EngineError::new(Fault::Misconfigured, obstacle))
            }
            Err(error) => Some(error.without_source()),
        };
        *control.last_error.lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }
}

pub(super) fn token_went_back_error(name: &Name) -> Error {
    let loss = Loss::TokenWentBack;
    Error::new(ErrorKind::Lost(loss), format!("the grant of {:?} is not valid: {loss}", name.as_str()))
}

//! The driver of one claim: asks, and waits for a notification or the next poll, until the claim is granted, refused or
//! not wanted any more.

use std::{
    pin::{Pin, pin},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use crate::{
    Answer, Claim, EngineError, Error, Fault, Grant, How, Instant, Name,
    contract::observe::Verb,
    driver::local::{Arrival, Control},
    driver::shared::Shared,
    pure::lease,
    pure::wait::{Wait, WaitAction},
};

/// The extra time, after the time for connecting, that an engine has to report by itself why connecting failed.
pub(crate) const REPORT_MARGIN: Duration = Duration::from_millis(50);

/// The answer to a first request that was sent already, and when that request was sent.
type FirstAnswer = Option<(Instant, Result<Answer, EngineError>)>;

/// Drives a claim; runs on the keeper. If the driver returns without a grant, it has begun to release all that the
/// claim may have on the engine.
pub(crate) fn drive(
    shared: Arc<Shared>,
    claim: Claim,
    control: Arc<Control>,
    first_answer: FirstAnswer,
) -> impl Future<Output = ()> + Send {
    let pending = shared.pending.add();
    let mut driver = ClaimDriver { may_be_on_engine: false, place: None, shared, claim, control };
    // A block instead of an `async fn`, whose future would reserve room for its arguments twice.
    async move {
        let _pending = pending;
        driver.run(first_answer).await;
    }
}

/// The claim that is driven, and its connections to the rest of the keeper.
struct ClaimDriver {
    shared: Arc<Shared>,
    claim: Claim,
    control: Arc<Control>,
    /// A request of this claim was sent and may have created something on the engine.
    may_be_on_engine: bool,
    /// The place in the queue that was reported last, if one was.
    place: Option<Option<u32>>,
}

/// Why the wait for a notification ended.
enum Woken {
    /// The claim was granted by push. The grant did not begin before this instant.
    Granted(Grant, Instant),
    /// The engine has to be asked.
    Ask,
    /// The request fails because of an outage.
    Outage(Error),
}

impl ClaimDriver {
    /// Asks until the claim is decided.
    async fn run(&mut self, mut first_answer: FirstAnswer) {
        let mut wait = Wait::new(&self.shared.profile, self.connect_deadline());
        let mut asked_to_extend = false;
        loop {
            if let Some(error) = self.shared.outage_error(&self.claim.name) {
                return self.fail(error);
            }
            let was_on_engine = self.may_be_on_engine;
            let (sent_at, answer) = match first_answer.take() {
                Some(first_answer) => first_answer,
                None => match self.send_request(wait.how()).await {
                    Some(answered) => answered,
                    None => return self.give_up(),
                },
            };
            self.may_be_on_engine =
                was_on_engine || answer.as_ref().map_or_else(|error| error.fault.may_be_applied(), |_| true);
            self.note_answer(&answer);
            if let Err(error) = &answer
                && let Some(error) = self.shared.outage_error_after(&self.claim.name, error)
            {
                return self.fail(error);
            }
            let now = self.shared.now();
            wait.set_pace(self.control.pace());
            let next = match wait.answered(answer, now, self.shared.env.jitter()) {
                WaitAction::Held(grant) if is_stale(sent_at, &grant, now) => WaitAction::Restart,
                next => next,
            };
            match next {
                // Extended only once: if all answers take so long, the next one will not be better.
                WaitAction::Held(grant) if !asked_to_extend && is_half_over(sent_at, &grant, now) => {
                    asked_to_extend = true
                }
                WaitAction::Held(grant) => return self.deliver_grant(&grant, Arrival::Answered(sent_at)),
                WaitAction::Fail(error) => {
                    if self.may_be_on_engine {
                        self.shared.undo(&self.claim);
                    }
                    return self.shared.refuse_claim(&self.claim, error);
                }
                WaitAction::Restart if !self.restart_with_new_id() => return,
                WaitAction::Restart => wait = wait.with_new_id(&self.shared.profile, self.connect_deadline()),
                WaitAction::Call { at, .. } => match self.wait_for_notification(at).await {
                    Woken::Granted(grant, since) => {
                        return self.deliver_grant(&grant, Arrival::Pushed(since));
                    }
                    Woken::Outage(error) => return self.fail(error),
                    Woken::Ask => {}
                },
            }
            if self.control.is_cancelled() {
                return self.give_up();
            }
        }
    }

    /// Sends one request. `None` when the claim was cancelled meanwhile: its outcome is then unknown, and the claim is
    /// cleaned up.
    async fn send_request(&mut self, how: How) -> Option<(Instant, Result<Answer, EngineError>)> {
        if self.control.is_cancelled() {
            return None;
        }
        self.may_be_on_engine = true;
        let sent_at = self.shared.now();
        self.control.set_request_sent(sent_at);
        let mut request = pin!(self.shared.ask(&self.claim, how, self.connect_deadline()));
        let mut was_notified = false;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut request => break answer,
                () = self.control.wake.notified() => {
                    if self.control.is_cancelled() {
                        return None;
                    }
                    was_notified = true;
                }
            }
        };
        self.control.set_request_sent(Instant::NEVER);
        if was_notified {
            // A notification during a request may be newer than its answer: keep it for afterwards.
            self.control.wake.notify_one();
        }
        Some((sent_at, answer))
    }

    /// Waits for a notification, until `at` at the latest, or until requests fail because of an outage.
    async fn wait_for_notification(&self, at: Instant) -> Woken {
        tokio::select! {
            biased;
            () = self.control.wake.notified() => self.pushed_grant(),
            outage = self.shared.sleep_unless_outage(at, &self.claim.name) => match outage {
                Some(error) => Woken::Outage(error),
                None => self.pushed_grant(),
            },
        }
    }

    /// The pushed grant, with a time before which it did not begin, if the grant belongs to this very claim and began
    /// at a known and recent time.
    fn pushed_grant(&self) -> Woken {
        let pushed = self.control.pushed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let now = self.shared.now();
        match pushed {
            Some((id, grant, Some(since))) if id == self.claim.id && !is_half_over(since, &grant, now) => {
                Woken::Granted(grant, since)
            }
            _ => Woken::Ask,
        }
    }

    /// Fails the request with this error, and releases what its claim may have on the engine.
    fn fail(&self, error: Error) {
        self.give_up();
        self.shared.fail_head(&self.claim, error);
    }

    /// Passes a grant on to the request that waits for it.
    fn deliver_grant(&self, grant: &Grant, arrival: Arrival) {
        self.shared.start_claim(self.shared.deliver_grant(&self.claim, grant, arrival));
    }

    /// Gives the claim a new id; false if its request was dropped. The old claim is released even when the
    /// engine does not know it: it may be a hold that was broken before its claim knew of it, which would block the new
    /// claim.
    fn restart_with_new_id(&mut self) -> bool {
        self.shared.undo(&self.claim);
        self.may_be_on_engine = false;
        self.shared.give_new_id(&mut self.claim)
    }

    /// Releases what the claim may have on the engine.
    fn give_up(&self) {
        if self.may_be_on_engine {
            self.shared.undo(&self.claim);
        }
    }

    /// Until when this claim waits for a connection; `None` if the engine was reached.
    fn connect_deadline(&self) -> Option<Instant> {
        self.shared.connect_deadline(self.control.since)
    }

    /// Records what an answer tells about the engine, and reports a new place in the queue.
    fn note_answer(&mut self, answer: &Result<Answer, EngineError>) {
        if let Ok(Answer::Waiting(hint) | Answer::Taken(hint)) = answer
            && self.place.replace(hint.ahead) != Some(hint.ahead)
        {
            self.shared.report_place(&self.claim, hint.ahead);
        }
        if answer.is_ok() {
            self.shared.set_reached();
        }
        Shared::note_last_error(&self.control, answer);
    }
}

/// Whether the granted time has ended. R1, F02: an answer that arrives so late is worthless.
fn is_stale(since: Instant, grant: &Grant, now: Instant) -> bool {
    grant.ttl.is_some_and(|ttl| lease::deadline(since, ttl) <= now)
}

/// Whether half of the granted time is over: the waiting request would get little. Asking again extends the grant.
fn is_half_over(since: Instant, grant: &Grant, now: Instant) -> bool {
    grant.ttl.is_some_and(|ttl| lease::deadline(since, ttl / 2) <= now)
}

impl Shared {
    /// Whether the engine has ever answered. An engine without a server counts as reached: its failures are not
    /// failures to connect, and a request waits until they pass.
    pub(crate) fn was_reached(&self) -> bool {
        self.profile.inline || self.reached.load(Ordering::Relaxed)
    }

    /// Until when a request made at `since` waits for a connection to an engine that was never reached; `None` if the
    /// engine was reached.
    pub(crate) fn connect_deadline(&self, since: Instant) -> Option<Instant> {
        (!self.was_reached()).then(|| since.after(self.connect_timeout))
    }

    /// Sends one claim request with a time limit; if no answer comes in time, its outcome is unknown. An engine that
    /// was never connected is given up at `connect_deadline`. A connected engine gets the full time, because a slow
    /// first answer is no outage.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        claim: &Claim,
        how: How,
        connect_deadline: Option<Instant>,
    ) -> Result<Answer, EngineError> {
        // Pinned here: an async function that takes a future reserves room for it twice.
        let request = pin!(async { self.engine.claim(claim, how).await });
        // The engine may still hold the request, and send it if it connects after all.
        self.answer_in_time(&claim.name, request, connect_deadline, || self.undo(claim)).await
    }

    /// The answer to a request about `name`, within the time that a request may take. `undo_late`: removes what the
    /// request may create if it is sent after the engine was given up at `connect_deadline`.
    pub(super) async fn answer_in_time<T>(
        self: &Arc<Self>,
        name: &Name,
        request: Pin<&mut impl Future<Output = Result<T, EngineError>>>,
        connect_deadline: Option<Instant>,
        undo_late: impl FnOnce(),
    ) -> Result<T, EngineError> {
        let (timeout, observed) = (self.profile.request_timeout, self.observed_now());
        let report = |error: Option<&EngineError>| {
            self.report_answer(Verb::Claim, observed, error.map(|error| error.fault));
        };
        let request = pin!(async {
            let answer = self.catch_panic(request).await;
            answer.unwrap_or_else(|panicked| Err(panicked.into_error()))
        });
        if self.profile.inline {
            let answer = request.await;
            report(answer.as_ref().err());
            return answer;
        }
        let answer = match connect_deadline {
            None => Ok(self.with_timeout(timeout, request).await),
            Some(deadline) => {
                let connect_failure = Box::pin(self.connect_failure(deadline));
                tokio::select! {
                    biased;
                    answer = self.with_timeout(timeout, request) => Ok(answer),
                    error = connect_failure => Err(error),
                }
            }
        };
        let answer = answer.inspect_err(|error| {
            report(Some(error));
            self.note_failure(name, error);
            undo_late();
        })?;
        let no_answer = || Err(EngineError::new(Fault::Unknown, format!("no answer within {timeout:?}")));
        let answer = answer.unwrap_or_else(no_answer);
        report(answer.as_ref().err());
        if let Err(error) = &answer {
            self.note_failure(name, error);
        }
        answer
    }

    /// Resolves with an error when the time for connecting is over and no connection was ever made; else never.
    async fn connect_failure(&self, deadline: Instant) -> EngineError {
        if let Some(contact) = &self.profile.contact {
            self.sleep_until(deadline.after(REPORT_MARGIN)).await;
            if !contact.was_reached() {
                return contact.unreachable_error(self.connect_timeout);
            }
        }
        std::future::pending().await
    }
}

//! A waiting request leaves without a guard: cancelled, or after its time limit.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::state::{NO_ANSWER_YET, NameState, PreparedClaim, Ticket, Waiter};
use crate::{
    EngineError, Error, ErrorKind, Fault, Instant, Name, driver::keeper::TimerAction, driver::shared::Shared,
};

/// An engine that leaves a request unanswered for this time counts as unresponsive: its earlier answers may be
/// outdated.
pub(crate) const UNRESPONSIVE_AFTER: Duration = Duration::from_millis(500);

/// How long before the end of a wait an engine with a long poll interval is asked once more, to find out whether it
/// still answers.
const LAST_ASK_BEFORE_END: Duration = Duration::from_secs(1);
/// An engine whose longest poll interval is at most this is not asked once more before the end of a wait.
const LONG_POLL: Duration = Duration::from_secs(2);

impl Shared {
    /// When the first timer of a request whose wait ends at `until` fires.
    pub(super) fn first_limit_check(&self, now: Instant, until: Instant) -> Instant {
        let polls_rarely = *self.profile.poll.end() > LONG_POLL && until.since(now) > LAST_ASK_BEFORE_END * 2;
        if polls_rarely { until.before(LAST_ASK_BEFORE_END) } else { until }
    }

    /// Sets a timer to check at `at` whether the wait of a request has ended, if the request still waits.
    pub(super) fn set_limit_timer(self: &Arc<Self>, name: &Name, ticket: Ticket, at: Instant) {
        let mut shard = self.table.shard(name);
        if let Some(waiter) = shard.get_mut(name).and_then(|state| state.queue.get_mut(ticket)) {
            waiter.limit_timer =
                Some(self.add_timer(at, TimerAction::Limit(Box::new((name.clone(), ticket)))));
        }
    }

    /// Handles the timer of a wait: ends the wait if its time is over, else asks the engine once more.
    pub(crate) fn handle_limit_timer(self: &Arc<Self>, name: &Name, ticket: Ticket) {
        let now = self.now();
        let until = {
            let mut shard = self.table.shard(name);
            let Some(state) = shard.get_mut(name) else { return };
            let Some(until) = state.queue.get_mut(ticket).map(|waiter| waiter.until) else { return };
            if let Some(claim) = state.claim.as_ref().filter(|_| now < until) {
                claim.control.wake.notify_one();
            }
            until
        };
        if now < until {
            self.set_limit_timer(name, ticket, until);
        } else {
            self.time_out(name, ticket);
        }
    }

    /// Removes a request whose future was dropped.
    pub(crate) fn cancel(self: &Arc<Self>, name: &Name, ticket: Ticket) {
        if !self.is_own_process() {
            return;
        }
        // The waiter holds a `SharedHandle`, so it is dropped here, after its shard is unlocked.
        let Some((waiter, _)) = self.remove_request(name, ticket) else { return };
        match &waiter.of_set {
            Some(contention) => contention.note(waiter.contended),
            None => waiter.span.in_scope(|| {
                let waited = self.waited_since(waiter.since);
                self.observer.cancelled(name, waiter.terms.mode, waited, waiter.contended);
            }),
        }
    }

    /// Fails a request whose wait has ended. The error reports the engine's last answer.
    fn time_out(self: &Arc<Self>, name: &Name, ticket: Ticket) {
        let Some((waiter, last_error)) = self.remove_request(name, ticket) else { return };
        let (engine, name_text) = (self.profile.engine, name.as_str());
        let error = match last_error {
            Some((kind, last_error)) => {
                Error::new(kind, format!("{engine} lock {name_text:?}: not acquired in time: {last_error}"))
            }
            None => Error::new(
                ErrorKind::TimedOut,
                format!("{engine} lock {name_text:?}: not acquired in time: it is held by another"),
            ),
        };
        self.fail_request(name, waiter, error);
    }

    /// Removes a request from the local queue, and returns it with the last error of the engine.
    fn remove_request(
        self: &Arc<Self>,
        name: &Name,
        ticket: Ticket,
    ) -> Option<(Waiter, Option<(ErrorKind, String)>)> {
        let mut shard = self.table.shard(name);
        let state = shard.get_mut(name)?;
        let waiter = state.queue.remove(ticket)?;
        let last_error = state.claim.as_ref().and_then(|claim| {
            let unanswered_for = claim.control.unanswered_for(self.now());
            let last_error = claim.control.last_error.lock().unwrap_or_else(PoisonError::into_inner);
            if unanswered_for >= UNRESPONSIVE_AFTER {
                self.set_unresponsive();
                return Some((ErrorKind::Unreachable, no_answer(unanswered_for, last_error.as_ref())));
            }
            if last_error.as_ref().is_some_and(|last_error| last_error.fault.is_outage()) {
                self.set_unresponsive();
            }
            last_error.as_ref().map(|last_error| (kind_at_time_out(last_error.fault), last_error.to_string()))
        });
        let prepared = self.fit_claim_to_head(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        drop(shard);
        if let Some(timer) = waiter.limit_timer {
            self.timers.remove(timer);
        }
        self.start_claim(prepared);
        Some((waiter, last_error))
    }

    /// Adapts the claim in flight to a new head of the local queue: a claim that does not fit the head is cancelled,
    /// and a claim for the head is started.
    pub(crate) fn fit_claim_to_head(&self, name: &Name, state: &mut NameState) -> Option<PreparedClaim> {
        if let Some(claim) = &state.claim {
            if let Some(head) = state.queue.head().filter(|head| head.terms == claim.terms) {
                claim.control.set_pace(head.pace);
                return None;
            }
            claim.control.cancel();
            state.claim = None;
        }
        self.prepare_next_claim(name, state)
    }
}

/// The reason if the last request was not answered for this time: that of the answer before it, which says more.
fn no_answer(unanswered_for: Duration, last_error: Option<&EngineError>) -> String {
    let seconds = unanswered_for.as_secs_f64();
    match last_error.filter(|error| error.message != NO_ANSWER_YET) {
        Some(error) => format!("{error}; then no answer for {seconds:.1} s"),
        None => format!("no answer for {seconds:.1} s"),
    }
}

/// The kind of error at the end of a wait, from the last error of its claim: "unreachable", unless the cause is a wrong
/// configuration, which does not end by itself.
const fn kind_at_time_out(fault: Fault) -> ErrorKind {
    match fault {
        Fault::Misconfigured => ErrorKind::Misconfigured,
        _ => ErrorKind::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_request_hides_no_reason_that_is_known() {
        let second = Duration::from_secs(1);
        let error = EngineError::new(Fault::Full, "no connection is free");
        assert_eq!(no_answer(second, Some(&error)), "no connection is free; then no answer for 1.0 s");
        let none_yet = EngineError::new(Fault::Unknown, NO_ANSWER_YET);
        for last_error in [None, Some(&none_yet)] {
            assert_eq!(no_answer(second, last_error), "no answer for 1.0 s");
        }
    }
}

//! A waiting request leaves without a guard: cancelled, or after its time limit.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::state::{NameState, Start, Ticket, Waiter};
use crate::{Error, ErrorKind, Fault, Instant, Name, driver::keeper::Due, driver::shared::Shared};

/// An engine that has not answered for so long may no longer know who holds: its earlier answers do not count.
pub(crate) const SILENT: Duration = Duration::from_millis(500);

/// How long before the end of a wait an engine with a long poll interval is asked once more, to see whether it still
/// answers.
const LAST_ASK: Duration = Duration::from_secs(1);
/// Engines with a shorter poll interval need no last question.
const LONG_POLL: Duration = Duration::from_secs(2);

impl Shared {
    /// When a request whose wait ends at `until` is first checked.
    pub(super) fn first_limit(&self, now: Instant, until: Instant) -> Instant {
        let polls_rarely = *self.profile.poll.end() > LONG_POLL && until.since(now) > LAST_ASK * 2;
        if polls_rarely { until.before(LAST_ASK) } else { until }
    }

    /// Sets a timer to check at `at` whether the wait of a request has ended, if the request still waits.
    pub(super) fn limit(self: &Arc<Self>, name: &Name, ticket: Ticket, at: Instant) {
        let mut shard = self.table.shard(name);
        if let Some(waiter) = shard.get_mut(name).and_then(|state| state.queue.get_mut(ticket)) {
            waiter.limit = Some(self.add_timer(at, Due::Limit(Box::new((name.clone(), ticket)))));
        }
    }

    /// The timer of a wait fired: for the last question, or for the end.
    pub(crate) fn limit_is_due(self: &Arc<Self>, name: &Name, ticket: Ticket) {
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
            self.limit(name, ticket, until);
        } else {
            self.time_out(name, ticket);
        }
    }

    /// The future of a request was dropped.
    pub(crate) fn cancel(self: &Arc<Self>, name: &Name, ticket: Ticket) {
        if !self.is_own_process() {
            return;
        }
        // The waiter holds a `Lifeline`, so it is dropped here, after its shard is unlocked.
        let _gone = self.leave(name, ticket);
    }

    /// The wait of a request has ended. The error reports the engine's last answer.
    fn time_out(self: &Arc<Self>, name: &Name, ticket: Ticket) {
        let Some((waiter, trouble)) = self.leave(name, ticket) else { return };
        let (engine, text) = (self.profile.engine, name.as_str());
        let error = match trouble {
            Some((kind, trouble)) => {
                Error::new(kind, format!("{engine} lock {text:?}: not acquired in time: {trouble}"))
            }
            None => Error::new(
                ErrorKind::TimedOut,
                format!("{engine} lock {text:?}: not acquired in time: it is held by another"),
            ),
        };
        self.fail(name, waiter, error);
    }

    /// Removes a request from the local queue, and returns it with the last error of the engine.
    fn leave(self: &Arc<Self>, name: &Name, ticket: Ticket) -> Option<(Waiter, Option<(ErrorKind, String)>)> {
        let mut shard = self.table.shard(name);
        let state = shard.get_mut(name)?;
        let waiter = state.queue.leave(ticket)?;
        let trouble = state.claim.as_ref().and_then(|claim| {
            let silent = claim.control.unanswered(self.now());
            if silent >= SILENT {
                self.fell_silent();
                return Some((ErrorKind::Unreachable, format!("no answer for {silent:.1?}")));
            }
            let trouble = claim.control.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            if trouble.as_ref().is_some_and(|trouble| trouble.fault.is_outage()) {
                self.fell_silent();
            }
            trouble.as_ref().map(|trouble| (kind_of(trouble.fault), trouble.to_string()))
        });
        let start = self.realign(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        drop(shard);
        if let Some(limit) = waiter.limit {
            self.timers.remove(limit);
        }
        self.run(start);
        Some((waiter, trouble))
    }

    /// The head of the local queue may have changed: a claim in flight that does not fit the new head is given up for
    /// one that does.
    pub(crate) fn realign(&self, name: &Name, state: &mut NameState) -> Option<Start> {
        if let Some(claim) = &state.claim {
            let fits = state.queue.head().is_some_and(|head| head.terms == claim.terms);
            if fits {
                return None;
            }
            claim.control.cancel();
            state.claim = None;
        }
        self.advance(name, state)
    }
}

/// The kind of error at the end of a wait, from the last error of its claim: an outage, unless the cause never ends by
/// itself.
const fn kind_of(fault: Fault) -> ErrorKind {
    match fault {
        Fault::Misconfigured => ErrorKind::Misconfigured,
        _ => ErrorKind::Unreachable,
    }
}

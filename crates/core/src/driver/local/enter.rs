//! How a request begins: it joins a hold of this process, enters the local queue, or makes its tries without a queue.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use tracing::Instrument;

use super::{
    grant::{Requester, report_grant},
    reenter::hold_index_of_owner,
    set::Contention,
    state::{NameState, Terms, Ticket, Waiter},
    wait_limit::{CountedWait, check_name},
};
use crate::{
    Error, ErrorKind, Guard, Instant, Mode, Name, Pace, Previous,
    driver::keeper::{KeeperJob, TriesOutcome, poll_once, try_without_queue},
    driver::shared::{Shared, SharedHandle},
};

/// The options of a request, all of them checked.
#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    pub(crate) name: Name,
    pub(crate) terms: Terms,
    /// How long the guard may use the hold, at most.
    pub(crate) max_hold: Option<Duration>,
    /// How often to ask the engine; `None`: at the intervals of the engine.
    pub(crate) pace: Option<Pace>,
    /// How many requests of this process may wait for the name when this one begins to wait.
    pub(crate) max_waiting: Option<usize>,
    /// For one name of a set: the events are those of the whole set, by
    /// [`SetEvents`](crate::driver::keeper::SetEvents).
    pub(crate) of_set: Option<Contention>,
}

/// How many tries a request makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tries {
    /// It waits in the queue.
    UntilGranted,
    /// At most this many tries, without entering the queue.
    Limited(u32),
}

/// The result of [`Shared::enter`].
pub(crate) enum Entered {
    /// The request is decided.
    Now(Result<Guard, Error>),
    /// The request waits; the ticket identifies its entry in the local queue, if it has one.
    Wait { rx: oneshot::Receiver<Result<Guard, Error>>, ticket: Option<Ticket> },
}

impl Shared {
    /// Begins a request: decides it at once, starts its tries, or puts it into the local queue.
    pub(crate) fn enter(
        handle: &Arc<SharedHandle>,
        spec: RequestSpec,
        limit: Option<Duration>,
        tries: Tries,
        span: &tracing::Span,
    ) -> Entered {
        let shared: &Arc<Self> = handle;
        if !shared.is_own_process() {
            let error = shared.check_open().expect_err("another process than the one of the `Locks`");
            return Entered::Now(Err(error));
        }
        let mode = spec.terms.mode;
        if spec.of_set.is_none() {
            shared.observer.wait_begun(&spec.name, mode);
        }
        if let Err(error) = shared.ensure_served() {
            return Entered::Now(shared.report_decision(&spec, Err(error)));
        }
        let now = shared.now();
        let until = limit.map(|limit| now.after(limit));
        let mut shard = shared.table.shard(&spec.name);
        if let Some(state) = shard.get_mut(&spec.name)
            && let Some(decided) = shared.decide_locally(handle, state, &spec, now)
        {
            drop(shard);
            return Entered::Now(shared.report_decision(&spec, decided));
        }
        if let Some(error) = shared.outage_error(&spec.name) {
            drop(shard);
            return Entered::Now(shared.report_decision(&spec, Err(error)));
        }
        if let Tries::Limited(tries) = tries {
            drop(shard);
            return shared.start_tries(handle, spec, tries, until, span, now);
        }
        // Closing empties the local queues shard by shard: a request that comes to a shard after it was emptied must
        // see that the `Locks` is closed.
        if let Err(error) = shared.check_open() {
            drop(shard);
            return Entered::Now(shared.report_decision(&spec, Err(error)));
        }
        let waiting_for_name = || shard.get(&spec.name).map_or(0, |state| state.queue.len());
        let waiting = spec.max_waiting.map_or(0, |_| waiting_for_name());
        let counted = match shared.count_wait(&spec, waiting) {
            Ok(counted) => counted,
            Err(error) => {
                drop(shard);
                return Entered::Now(shared.report_decision(&spec, Err(error)));
            }
        };
        let state = shard.entry(spec.name.clone()).or_default();
        let ahead = state.queue.len();
        let contended = ahead > 0 || state.conflicts(mode);
        let (tx, rx) = oneshot::channel();
        let ticket = shared.next_ticket();
        let waiter = Waiter {
            terms: spec.terms,
            max_hold: spec.max_hold,
            pace: spec.pace,
            since: now,
            limit_timer: None,
            until: until.unwrap_or(Instant::NEVER),
            contended,
            of_set: spec.of_set,
            span: span.clone(),
            counted,
            handle: Arc::clone(handle),
            tx,
        };
        state.queue.push(ticket, waiter);
        let prepared = shared.prepare_next_claim(&spec.name, state);
        drop(shard);
        if contended {
            shared.observer.queued(&spec.name, mode, u32::try_from(ahead).ok());
        }
        shared.start_claim(prepared);
        if let Some(until) = until {
            shared.set_limit_timer(&spec.name, ticket, shared.first_limit_check(now, until));
        }
        Entered::Wait { rx, ticket: Some(ticket) }
    }

    /// Counts a request that begins to wait behind `waiting` others, if the number of waiting requests is limited.
    fn count_wait(&self, spec: &RequestSpec, waiting: usize) -> Result<Option<CountedWait>, Error> {
        check_name(self.profile.engine, &spec.name, waiting, spec.max_waiting)?;
        self.wait_limit.count(self.profile.engine, &spec.name)
    }

    /// Decides without the engine where possible: an error, the same hold again for the same owner, or a shared hold
    /// that can still be joined. `None` where the engine has to decide.
    fn decide_locally(
        self: &Arc<Self>,
        handle: &Arc<SharedHandle>,
        state: &mut NameState,
        spec: &RequestSpec,
        now: Instant,
    ) -> Option<Result<Guard, Error>> {
        let RequestSpec { name, terms, max_hold, of_set, .. } = spec;
        if let Some(other) = state.clashing_mode(terms.mode) {
            return Some(Err(clash_error(name, terms.mode, other)));
        }
        let requester = Requester { handle, terms, max_hold: *max_hold, of_set: of_set.is_some() };
        if let Some(owner) = &terms.owner
            && let Some(hold_index) = hold_index_of_owner(state, owner, now)
        {
            return self.reenter(name, &mut state.holds[hold_index], &requester, now);
        }
        if terms.mode != Mode::Shared || !state.queue.is_empty() {
            return None;
        }
        let hold = state.holds.iter_mut().find(|hold| hold.can_hand_over(terms, now))?;
        let token = hold.take_token()?;
        Some(Ok(self.new_guard(name, hold, &requester, token, Previous::Clean, now)))
    }

    /// Tries without entering the queue: on this thread if the engine never waits and there is only one try, else on
    /// the keeper.
    fn start_tries(
        self: &Arc<Self>,
        handle: &Arc<SharedHandle>,
        spec: RequestSpec,
        tries: u32,
        until: Option<Instant>,
        span: &tracing::Span,
        now: Instant,
    ) -> Entered {
        let (tx, mut rx) = oneshot::channel();
        let outcome = TriesOutcome::new(Arc::clone(handle), &spec, now);
        let mut tries_task =
            Box::pin(try_without_queue(outcome, spec, tries, until, tx).instrument(span.clone()));
        if self.profile.inline && tries == 1 && poll_once(tries_task.as_mut()).is_some() {
            return match rx.try_recv() {
                Ok(result) => Entered::Now(result),
                Err(_) => Entered::Now(Err(Error::new(ErrorKind::Internal, "a try ended without an answer"))),
            };
        }
        self.queue_job(KeeperJob::Spawn(tries_task));
        Entered::Wait { rx, ticket: None }
    }

    /// Reports the decision to the observers.
    fn report_decision(&self, spec: &RequestSpec, decided: Result<Guard, Error>) -> Result<Guard, Error> {
        let name = &spec.name;
        let (waited, decided) = (Duration::ZERO, decided.map_err(|error| error.of_name(name)));
        match &decided {
            Ok(guard) => report_grant(guard, spec.of_set.as_ref(), waited, false, true),
            Err(_) if spec.of_set.is_some() => {}
            Err(error) => self.observer.refused(name, spec.terms.mode, error, waited),
        }
        decided
    }
}

/// The error for a request whose mode is of another kind than the mode in use.
fn clash_error(name: &Name, wanted: Mode, other: Mode) -> Error {
    Error::misconfigured(format!(
        "lock {:?}: wanted {wanted}, but this process uses it as {other}: one name has one kind of lock and one limit",
        name.as_str()
    ))
}

//! A request that does not enter the queue: one try, or a bounded number of them with growing pauses.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    Answer, Claim, EngineError, Error, ErrorKind, Fault, Guard, Hint, How, Instant, Mode, Name,
    driver::local::{RequestSpec, SentClaim},
    driver::shared::{Shared, SharedHandle},
    pure::wait::{Wait, WaitAction},
};

/// Reports how a request without a queue ended. When it is dropped without an outcome, the request was cancelled, or
/// its keeper is gone.
pub(crate) struct TriesOutcome {
    handle: Arc<SharedHandle>,
    name: Name,
    mode: Mode,
    /// When the request began.
    since: Instant,
    /// Whether a try found the name taken.
    contended: bool,
    /// The outcome was reported, or the set of this name reports it.
    is_reported: bool,
}

impl TriesOutcome {
    pub(crate) fn new(handle: Arc<SharedHandle>, spec: &RequestSpec, since: Instant) -> Self {
        let (contended, is_reported) = (false, spec.of_set.is_some());
        Self { handle, name: spec.name.clone(), mode: spec.terms.mode, since, contended, is_reported }
    }

    /// Reports the result. A grant was reported when its guard was made.
    fn report(&mut self, result: &Result<Guard, Error>) {
        if !std::mem::replace(&mut self.is_reported, true)
            && let Err(error) = result
        {
            let waited = self.handle.waited_since(self.since);
            self.handle.observer.refused(&self.name, self.mode, error, waited);
        }
    }
}

impl Drop for TriesOutcome {
    fn drop(&mut self) {
        if self.is_reported || !self.handle.is_own_process() {
            return;
        }
        match self.handle.check_open() {
            Ok(()) => {
                let waited = self.handle.waited_since(self.since);
                self.handle.observer.cancelled(&self.name, self.mode, waited, self.contended);
            }
            Err(closed) => self.report(&Err(closed.of_name(&self.name))),
        }
    }
}

/// Tries up to `tries` times, until `until` at the latest or until the request is dropped, and sends the outcome.
pub(crate) async fn try_without_queue(
    mut outcome: TriesOutcome,
    spec: RequestSpec,
    tries: u32,
    until: Option<Instant>,
    mut tx: oneshot::Sender<Result<Guard, Error>>,
) {
    let (handle, since) = (Arc::clone(&outcome.handle), outcome.since);
    let _pending = handle.pending.add();
    let mut last_error = unanswered_error(&handle, &spec);
    let time_limit = async {
        match until {
            Some(until) => handle.sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        biased;
        result = run_tries(&handle, &spec, tries, since, (&mut outcome.contended, &mut last_error)) => result,
        () = time_limit => None,
        () = tx.closed() => return,
    };
    let result = result.ok_or_else(|| last_error.of_name(&spec.name));
    outcome.report(&result);
    let _ = tx.send(result);
}

/// Tries until the outcome is decided. Returns `None` when the tries are used up, or after an error that a further try
/// cannot mend. `contended` is set when a try finds the name taken, `last_error` to the error of the last try.
async fn run_tries(
    handle: &Arc<SharedHandle>,
    spec: &RequestSpec,
    tries: u32,
    since: Instant,
    (contended, last_error): (&mut bool, &mut Error),
) -> Option<Guard> {
    let mut wait = Wait::new(&handle.profile, None);
    wait.set_pace(spec.pace);
    for tries_left in (0..tries).rev() {
        let hint = match try_once(handle, spec, since, *contended).await {
            Ok(Ok(guard)) => return Some(guard),
            Ok(Err(error)) => {
                *last_error = error;
                return None;
            }
            Err((error, hint)) => {
                *contended |= error.is_taken();
                *last_error = error;
                hint
            }
        };
        // Servers that were never reached are tried for `connect_timeout` at most.
        if tries_left == 0 || handle.connect_deadline(since).is_some_and(|limit| handle.now() >= limit) {
            break;
        }
        let WaitAction::Call { at, .. } =
            wait.answered(Ok(Answer::Taken(hint)), handle.now(), handle.env.jitter())
        else {
            break;
        };
        if let Some(error) = handle.sleep_unless_outage(at, &spec.name).await {
            *last_error = error;
            return None;
        }
    }
    None
}

/// The claim of one try. Its drop releases the claim on the engine, unless the outcome of the try is known. So this
/// also happens when the future of the try is dropped.
struct PendingUndo<'a> {
    handle: &'a Arc<SharedHandle>,
    claim: Claim,
    /// The engine answered that the claim holds (then a guard releases it), or that nothing of it was created.
    outcome_known: bool,
}

impl Drop for PendingUndo<'_> {
    fn drop(&mut self) {
        if !self.outcome_known {
            self.handle.undo(&self.claim);
        }
    }
}

/// One try, with a new claim. `Ok` is the final result of the request, a guard or an error; `Err` is an error after
/// which the next try may succeed, with the engine's hint.
async fn try_once(
    handle: &Arc<SharedHandle>,
    spec: &RequestSpec,
    since: Instant,
    contended: bool,
) -> Result<Result<Guard, Error>, (Error, Hint)> {
    if let Err(closed) = handle.check_open() {
        return Ok(Err(closed));
    }
    if handle.is_blocked_locally(spec) {
        return Err((taken_error(handle, spec), Hint::default()));
    }
    let (may_queue, others_wait) = (false, false);
    let claim = handle.new_claim(&spec.name, &spec.terms, may_queue, others_wait);
    let mut pending_undo = PendingUndo { handle, claim, outcome_known: false };
    let newest_token = handle.newest_tokens.newest(&spec.name);
    let sent_claim = SentClaim { since, contended, sent_at: handle.now(), newest_token };
    let answer = handle.ask(&pending_undo.claim, How::Create, handle.connect_deadline(since)).await;
    if answer.is_ok() {
        handle.set_reached();
    }
    match answer {
        Ok(Answer::Held(grant)) => {
            pending_undo.outcome_known = true;
            Ok(handle.guard_of_try(handle, spec, &pending_undo.claim, &grant, sent_claim))
        }
        Ok(Answer::Taken(hint)) => {
            pending_undo.outcome_known = true;
            Err((blocked_error(handle, spec, hint), hint))
        }
        // An engine that queues a claim without `may_queue` breaks its contract; the claim is undone here all the same.
        Ok(Answer::Waiting(hint)) => Err((blocked_error(handle, spec, hint), hint)),
        Ok(Answer::Gone) => Err((taken_error(handle, spec), Hint::default())),
        Err(error) => {
            pending_undo.outcome_known = !error.fault.may_be_applied();
            let may_retry = matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
            let error = Error::from_engine(error, &spec.name, handle.profile.engine);
            if may_retry { Err((error, Hint::default())) } else { Ok(Err(error)) }
        }
    }
}

/// The error of a request whose time limit ends before the first answer.
pub(super) fn unanswered_error(shared: &Shared, spec: &RequestSpec) -> Error {
    let (engine, name) = (shared.profile.engine, spec.name.as_str());
    let message = format!("{engine} lock {name:?}: not acquired: the engine has not answered in time");
    Error::new(ErrorKind::Unreachable, message)
}

/// The error for a name that is taken, or blocked by something that may never end.
pub(super) fn blocked_error(shared: &Shared, spec: &RequestSpec, hint: Hint) -> Error {
    match hint.obstacle {
        None => taken_error(shared, spec),
        Some(obstacle) => {
            let error = EngineError::new(Fault::Misconfigured, obstacle);
            Error::from_engine(error, &spec.name, shared.profile.engine).of_obstacle()
        }
    }
}

pub(super) fn taken_error(shared: &Shared, spec: &RequestSpec) -> Error {
    let (engine, name) = (shared.profile.engine, spec.name.as_str());
    Error::new(ErrorKind::Taken, format!("{engine} lock {name:?}: not acquired: it is held by another"))
}

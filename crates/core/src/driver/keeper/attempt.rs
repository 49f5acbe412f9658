//! A request that does not enter the queue: one try, or a bounded number of them with growing pauses.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    Answer, Claim, EngineError, Error, ErrorKind, Fault, Guard, Hint, How, Instant,
    driver::local::{RequestSpec, SentClaim},
    driver::shared::{Shared, SharedHandle},
    pure::wait::{Wait, WaitAction},
};

/// Tries up to `tries` times, until `until` at the latest or until the request is dropped, and sends the outcome.
pub(crate) async fn try_without_queue(
    handle: Arc<SharedHandle>,
    spec: RequestSpec,
    tries: u32,
    until: Option<Instant>,
    mut tx: oneshot::Sender<Result<Guard, Error>>,
) {
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
        result = run_tries(&handle, &spec, tries, &mut last_error) => result,
        () = time_limit => None,
        () = tx.closed() => return,
    };
    let result = result.ok_or(last_error);
    if let Err(error) = &result {
        handle.observer.event(&crate::contract::observe::Event::Refused { name: &spec.name, error });
    }
    let _ = tx.send(result);
}

/// Tries until the outcome is decided. Returns `None` when the tries are used up, or after an error that a further try
/// cannot mend. `last_error` is set to the error of the last try.
async fn run_tries(
    handle: &Arc<SharedHandle>,
    spec: &RequestSpec,
    tries: u32,
    last_error: &mut Error,
) -> Option<Guard> {
    let mut wait = Wait::new(&handle.profile, None);
    wait.set_pace(spec.pace);
    let since = handle.now();
    for tries_left in (0..tries).rev() {
        let hint = match try_once(handle, spec, since).await {
            Ok(Ok(guard)) => return Some(guard),
            Ok(Err(error)) => {
                *last_error = error;
                return None;
            }
            Err((error, hint)) => {
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
    let sent_claim =
        SentClaim { sent_at: handle.now(), newest_token: handle.newest_tokens.newest(&spec.name) };
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
fn unanswered_error(shared: &Shared, spec: &RequestSpec) -> Error {
    let (engine, name) = (shared.profile.engine, spec.name.as_str());
    let message = format!("{engine} lock {name:?}: not acquired: the engine has not answered in time");
    Error::new(ErrorKind::Unreachable, message)
}

/// The error for a name that is taken, or blocked by something that may never end.
fn blocked_error(shared: &Shared, spec: &RequestSpec, hint: Hint) -> Error {
    match hint.obstacle {
        None => taken_error(shared, spec),
        Some(obstacle) => {
            let error = EngineError::new(Fault::Misconfigured, obstacle);
            Error::from_engine(error, &spec.name, shared.profile.engine)
        }
    }
}

fn taken_error(shared: &Shared, spec: &RequestSpec) -> Error {
    let (engine, name) = (shared.profile.engine, spec.name.as_str());
    Error::new(ErrorKind::Taken, format!("{engine} lock {name:?}: not acquired: it is held by another"))
}

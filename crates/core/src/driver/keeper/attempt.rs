//! A request that does not enter the queue: one try, or a bounded number of them with growing pauses.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    Answer, Claim, EngineError, Error, ErrorKind, Fault, Guard, Hint, How, Instant,
    driver::local::{Asked, Sent},
    driver::shared::{Lifeline, Shared},
    pure::wait::{Next, Wait},
};

/// Tries up to `tries` times, until `until` at the latest or until the request is dropped, and sends the outcome.
pub(crate) async fn attempt(
    lifeline: Arc<Lifeline>,
    asked: Asked,
    tries: u32,
    until: Option<Instant>,
    mut tx: oneshot::Sender<Result<Guard, Error>>,
) {
    let _pending = lifeline.pending.one();
    let mut last = unanswered(&lifeline, &asked);
    let over = async {
        match until {
            Some(until) => lifeline.sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        biased;
        result = try_on(&lifeline, &asked, tries, &mut last) => result,
        () = over => None,
        () = tx.closed() => return,
    };
    let result = result.ok_or(last);
    if let Err(error) = &result {
        lifeline.observer.event(&crate::contract::observe::Event::Refused { name: &asked.name, error });
    }
    let _ = tx.send(result);
}

/// Tries until the outcome is decided; `None` when the tries are used up. `last` is the error of the last try.
async fn try_on(lifeline: &Arc<Lifeline>, asked: &Asked, tries: u32, last: &mut Error) -> Option<Guard> {
    let mut wait = Wait::new(&lifeline.profile, None);
    let since = lifeline.now();
    for left in (0..tries).rev() {
        let hint = match once(lifeline, asked, since).await {
            Ok(Ok(guard)) => return Some(guard),
            Ok(Err(error)) => {
                *last = error;
                return None;
            }
            Err((error, hint)) => {
                *last = error;
                hint
            }
        };
        // Servers that were never reached are tried for `connect_timeout` at most.
        if left == 0 || lifeline.first_contact(since).is_some_and(|limit| lifeline.now() >= limit) {
            break;
        }
        let Next::Call { at, .. } =
            wait.answered(Ok(Answer::Taken(hint)), lifeline.now(), lifeline.env.jitter())
        else {
            break;
        };
        lifeline.sleep_until(at).await;
    }
    None
}

/// Undoes a claim whose outcome is not certain when its try ends, in whatever way.
struct Armed<'a> {
    lifeline: &'a Arc<Lifeline>,
    claim: Claim,
    certain: bool,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if !self.certain {
            self.lifeline.undo(&self.claim);
        }
    }
}

/// One try, with a claim of its own: decided, or an error after which the next try may succeed.
async fn once(
    lifeline: &Arc<Lifeline>,
    asked: &Asked,
    since: Instant,
) -> Result<Result<Guard, Error>, (Error, Hint)> {
    if let Err(closed) = lifeline.check_open() {
        return Ok(Err(closed));
    }
    if lifeline.is_blocked_locally(asked) {
        return Err((taken(lifeline, asked, 1), Hint::default()));
    }
    let claim = lifeline.new_claim(&asked.name, &asked.terms, false, false);
    let mut armed = Armed { lifeline, claim, certain: false };
    let sent = Sent { at: lifeline.now(), newest: lifeline.newest_tokens.newest(&asked.name) };
    let answer = lifeline.ask(&armed.claim, How::Create, lifeline.first_contact(since)).await;
    if answer.is_ok() {
        lifeline.note_contact();
    }
    match answer {
        Ok(Answer::Held(grant)) => {
            armed.certain = true;
            Ok(lifeline.adopt(lifeline, asked, &armed.claim, &grant, sent))
        }
        Ok(Answer::Taken(hint)) => {
            armed.certain = true;
            Err((blocked_error(lifeline, asked, hint), hint))
        }
        // An engine that queues a claim without `may_queue` breaks its contract; the claim is undone here all the same.
        Ok(Answer::Waiting(hint)) => Err((blocked_error(lifeline, asked, hint), hint)),
        Ok(Answer::Gone) => Err((taken(lifeline, asked, 1), Hint::default())),
        Err(error) => {
            armed.certain = !error.fault.may_be_applied();
            let again = matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
            let error = Error::from_engine(error, &asked.name, lifeline.profile.engine);
            if again { Err((error, Hint::default())) } else { Ok(Err(error)) }
        }
    }
}

fn unanswered(shared: &Shared, asked: &Asked) -> Error {
    let (engine, name) = (shared.profile.engine, asked.name.as_str());
    let message = format!("{engine} lock {name:?}: not acquired: the engine has not answered in time");
    Error::new(ErrorKind::Unreachable, message)
}

/// The error for a name that is taken, or blocked by something that may never end.
fn blocked_error(shared: &Shared, asked: &Asked, hint: Hint) -> Error {
    match hint.obstacle {
        None => taken(shared, asked, 1),
        Some(what) => {
            let error = EngineError::new(Fault::Misconfigured, what);
            Error::from_engine(error, &asked.name, shared.profile.engine)
        }
    }
}

fn taken(shared: &Shared, asked: &Asked, tries: u32) -> Error {
    let (engine, name) = (shared.profile.engine, asked.name.as_str());
    let after = if tries > 1 { format!(" after {tries} tries") } else { String::new() };
    Error::new(
        ErrorKind::Taken,
        format!("{engine} lock {name:?}: not acquired{after}: it is held by another"),
    )
}

//! A request that takes no place in line: one try, or a bounded number of them with growing pauses.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::env::sleep_until;
use crate::{
    Answer, Error, ErrorKind, Fault, Guard, How, Instant,
    local::Asked,
    shared::{Lifeline, Shared},
    wait::{Next, Wait},
};

/// Tries up to `tries` times, until `until` at the latest, and sends what came of it.
pub(crate) async fn attempt(
    life: Arc<Lifeline>,
    asked: Asked,
    tries: u32,
    until: Option<Instant>,
    tx: oneshot::Sender<Result<Guard, Error>>,
) {
    let _pending = life.pending.one();
    let mut wait = Wait::new(&life.profile, Some(life.now()));
    let mut last = taken(&life, &asked, tries);
    for left in (0..tries).rev() {
        let (outcome, answer) = once(&life, &asked).await;
        match outcome {
            Ok(guard) => return drop(tx.send(Ok(guard))),
            Err(error) => last = error,
        }
        let retriable = last.is_taken() || last.is_unreachable();
        if left == 0 || !retriable || tx.is_closed() {
            break;
        }
        let now = life.now();
        let Next::Call { at, .. } = wait.answered(Ok(answer), now, u32::from_ne_bytes(random(&life))) else {
            break;
        };
        let at = until.map_or(at, |until| until.min(at));
        sleep_until(&*life.env.clock, at).await;
        if until.is_some_and(|until| life.now() >= until) {
            break;
        }
    }
    life.observer.event(&crate::observe::Event::Refused { name: &asked.name, error: &last });
    let _ = tx.send(Err(last));
}

/// One try, by a claim of its own.
async fn once(life: &Arc<Lifeline>, asked: &Asked) -> (Result<Guard, Error>, Answer) {
    let taken_answer = Answer::Taken(crate::Hint::default());
    if life.stands_in_the_way(asked) {
        return (Err(taken(life, asked, 1)), taken_answer);
    }
    let claim = life.new_claim(&asked.name, &asked.terms, false);
    let sent = life.now();
    let answer = life.ask(&claim, How::Create).await;
    if answer.is_ok() {
        life.heard();
    }
    match answer {
        Ok(Answer::Held(grant)) => (life.adopt(life, asked, &claim, &grant, sent), taken_answer),
        Ok(Answer::Taken(hint)) => (Err(taken(life, asked, 1)), Answer::Taken(hint)),
        Ok(Answer::Waiting(_) | Answer::Gone) => {
            // An engine that queues what may not queue is wrong, but leaves nothing behind through us.
            life.undo(&claim, None);
            (Err(taken(life, asked, 1)), taken_answer)
        }
        Err(error) => {
            if error.fault == Fault::Unknown {
                life.undo(&claim, None);
            }
            (Err(Error::from_engine(error, &asked.name, life.profile.engine)), taken_answer)
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

fn random(shared: &Shared) -> [u8; 4] {
    let mut bytes = [0; 4];
    shared.env.entropy.fill(&mut bytes);
    bytes
}

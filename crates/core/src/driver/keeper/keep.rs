//! The minimum hold time where the engine cannot keep a name taken after a release: the keeper goes on holding until
//! then.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    ClaimId, Error, Guard, Instant, Name, Previous,
    driver::keeper::Work,
    driver::local::{Ending, LetGo, Parting, unheard},
    driver::shared::Lifeline,
    driver::validity::Validity,
};

/// The keeper's own share of a hold. It has no owner, so no request can take the hold again through it.
struct Kept {
    life: Arc<Lifeline>,
    validity: Arc<Validity>,
    name: Name,
    id: ClaimId,
    until: Instant,
}

/// Keeps the hold of `guard`, which is about to be released, until `until`; the result arrives then. `None` where
/// nothing is to be done: the engine keeps the name itself, the time has passed, or the hold is lost.
pub(crate) fn keep(guard: &Guard, until: Instant) -> Option<LetGo> {
    let life = guard.life();
    if !life.is_home() || life.profile.can_keep {
        return None;
    }
    let now = life.now();
    if until <= now || guard.validity.loss(now).is_some() {
        return None;
    }
    let validity = life.keep_up(guard, now)?;
    let kept = Kept { life: Arc::clone(life), validity, name: guard.name.clone(), id: guard.id, until };
    let (reply, answer) = oneshot::channel();
    life.give(Work::Spawn(Box::pin(async move { drop(reply.send(kept.see_through().await)) })));
    Some(LetGo::Sent(answer))
}

impl Kept {
    /// Releases when the time has come, or when the hold is lost.
    async fn see_through(self) -> Result<(), Error> {
        let Self { life, validity, name, id, until } = self;
        tokio::select! {
            biased;
            _ = validity.told() => {}
            () = life.sleep_until(until) => {}
        }
        let ending = Ending { ended: Previous::Clean, keep_until: Some(until) };
        match life.let_go(&Parting { name: &name, id, validity: &validity, ending, now: life.now() }) {
            LetGo::Done(result) => result,
            LetGo::Sent(answer) => answer.await.unwrap_or_else(|_| Err(unheard(&name))),
        }
    }
}

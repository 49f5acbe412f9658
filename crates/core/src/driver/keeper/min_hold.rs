//! The minimum hold time where the engine cannot block a name after a release: the keeper holds the name until then.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    ClaimId, Error, Guard, Instant, Name, Previous,
    driver::keeper::Work,
    driver::local::{Ending, GuardRelease, ReleaseOutcome, unanswered_release},
    driver::shared::Lifeline,
    driver::validity::Validity,
};

/// The keeper's own share of a hold. It has no owner, so no request can take the hold again through it.
struct MinHold {
    lifeline: Arc<Lifeline>,
    validity: Arc<Validity>,
    name: Name,
    id: ClaimId,
    until: Instant,
}

/// Holds the name of `guard`, which is about to be released, until `until`; the result arrives then. `None` where
/// nothing is to be done: the engine blocks the name itself, the time has passed, or the hold is lost.
pub(crate) fn hold_until(guard: &Guard, until: Instant) -> Option<ReleaseOutcome> {
    let lifeline = guard.lifeline();
    if !lifeline.is_own_process() || lifeline.profile.supports_min_hold {
        return None;
    }
    let now = lifeline.now();
    if until <= now || guard.validity.loss(now).is_some() {
        return None;
    }
    let validity = lifeline.add_keeper_guard(guard, now)?;
    let min_hold =
        MinHold { lifeline: Arc::clone(lifeline), validity, name: guard.name.clone(), id: guard.id, until };
    let (reply, answer) = oneshot::channel();
    lifeline.give(Work::Spawn(Box::pin(async move { drop(reply.send(min_hold.see_through().await)) })));
    Some(ReleaseOutcome::Sent(answer))
}

impl MinHold {
    /// Releases when the time has come, or when the hold is lost.
    async fn see_through(self) -> Result<(), Error> {
        let Self { lifeline, validity, name, id, until } = self;
        tokio::select! {
            biased;
            _ = validity.reported() => {}
            () = lifeline.sleep_until(until) => {}
        }
        let ending = Ending { ended: Previous::Clean, min_hold_until: Some(until) };
        match lifeline.release_guard(&GuardRelease {
            name: &name,
            id,
            validity: &validity,
            ending,
            now: lifeline.now(),
        }) {
            ReleaseOutcome::Done(result) => result,
            ReleaseOutcome::Sent(answer) => answer.await.unwrap_or_else(|_| Err(unanswered_release(&name))),
        }
    }
}

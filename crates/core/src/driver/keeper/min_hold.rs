//! The minimum hold time where the engine cannot block a name after a release: the keeper holds the name for that time.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    ClaimId, Error, Guard, Instant, Name, Previous,
    driver::keeper::KeeperJob,
    driver::local::{Ending, GuardRelease, ReleaseOutcome, unanswered_release},
    driver::shared::SharedHandle,
    driver::validity::Validity,
};

/// A hold that the keeper keeps after its guard was released. The keeper counts as one more guard of this hold. This
/// guard has no owner, so no request can join the hold through it.
struct KeptHold {
    handle: Arc<SharedHandle>,
    validity: Arc<Validity>,
    name: Name,
    id: ClaimId,
    /// The end of the minimum hold time.
    until: Instant,
}

/// Holds the name of `guard`, which is about to be released, until `until`. The outcome of the release arrives after
/// `until`, or when the hold is lost. `None` if the guard can be released at once: the engine blocks the name itself,
/// the time has passed, or the hold is lost.
pub(crate) fn hold_until(guard: &Guard, until: Instant) -> Option<ReleaseOutcome> {
    let handle = guard.shared_handle();
    if !handle.is_own_process() || handle.profile.supports_min_hold {
        return None;
    }
    let now = handle.now();
    if until <= now || guard.validity.loss(now).is_some() {
        return None;
    }
    let validity = handle.add_keeper_guard(guard, now)?;
    let kept_hold =
        KeptHold { handle: Arc::clone(handle), validity, name: guard.name.clone(), id: guard.id, until };
    let (reply, answer) = oneshot::channel();
    handle.queue_job(KeeperJob::Spawn(Box::pin(async move {
        drop(reply.send(kept_hold.release_when_over().await))
    })));
    Some(ReleaseOutcome::Sent(answer))
}

impl KeptHold {
    /// Releases when the minimum hold time is over, or when the hold is lost.
    async fn release_when_over(self) -> Result<(), Error> {
        let Self { handle, validity, name, id, until } = self;
        tokio::select! {
            biased;
            _ = validity.reported() => {}
            () = handle.sleep_until(until) => {}
        }
        let ending = Ending { ended: Previous::Clean, min_hold_until: Some(until) };
        match handle.release_guard(&GuardRelease {
            name: &name,
            id,
            validity: &validity,
            ending,
            now: handle.now(),
        }) {
            ReleaseOutcome::Done(result) => result,
            ReleaseOutcome::Sent(answer) => answer.await.unwrap_or_else(|_| Err(unanswered_release(&name))),
        }
    }
}

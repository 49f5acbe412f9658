//! Conversions: an exclusive hold becomes shared, or a shared one exclusive, without being released between. An engine
//! offers them by the trait [`Conversions`], or says in its profile why it has none.

use crate::{BoxFuture, Claim, EngineError, Grant, Hold, Loss, Renewed};

/// The conversions of an engine.
///
/// The rules of [`Engine`](crate::Engine) apply: in particular, a request that comes twice gets the same answer (R21),
/// an unknown outcome is never reported as "not applied" (R12), and the future of a request may be dropped at any point
/// (R23). Conversions have these rules of their own (R31):
///
/// 1. **No gap.** A conversion is one atomic step: no other claim holds the name exclusively between the hold before
///    the conversion and the hold after it.
/// 2. **Downgrade.** The hold of the claim, with its token, becomes shared, and its lease begins anew, as by a renewal.
///    For the [`Previous`](crate::Previous) of later grants the exclusive hold ended clean. In the same step the name
///    is granted to the claims at the head of the queue that fit beside the shared hold. A writer that waits keeps its
///    place. The downgrade of a hold that is shared already changes nothing but the lease.
/// 3. **Upgrade.** A new claim, with an id of its own, takes the place of a shared hold: in one step the hold ends,
///    as a release ends it (its claim can create nothing any more), and the new claim holds the name exclusively, with
///    a new token. That happens only if the shared hold is the only hold of the name and no claim waits. Otherwise
///    nothing changes: the hold stays, and nothing of the new claim remains. An upgrade never waits.
/// 4. **No late upgrade** (R9). After [`release`](crate::Engine::release) of the new claim was answered, no earlier
///    request of the upgrade changes anything.
///
/// No method has a default body, so that a decorator cannot forget to forward one.
pub trait Conversions: Send + Sync {
    /// Makes an exclusive hold shared; `hold.mode` is exclusive. The answer is that to a renewal. An error with which
    /// the request was certainly not applied leaves the hold exclusive.
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed>;

    /// Makes a shared hold exclusive, by `claim`, a new exclusive claim of the name without
    /// [`may_queue`](Claim::may_queue); `hold.mode` is shared.
    ///
    /// # Errors
    /// An [`EngineError`] whose [`Fault`](crate::Fault) tells whether the upgrade may have been applied.
    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>>;
}

/// The answer of an engine to an upgrade.
#[derive(Clone, Debug)]
pub enum Upgraded {
    /// The new claim holds the name exclusively, and the shared hold has ended.
    Held(Grant),
    /// The name has another hold, or a claim waits for it. The shared hold stays as it is, and nothing of the new claim
    /// remains.
    Taken,
    /// The name is not held by the shared hold any more. Nothing of the new claim remains.
    Lost(Loss),
}

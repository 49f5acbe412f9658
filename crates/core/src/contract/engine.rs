//! The contract between core and engines: what an engine implements, and the rules that it obeys.

use std::{future::Future, pin::Pin};

use crate::{
    AllAnswer, Answer, Claim, Conversions, EngineError, Hold, How, Inspect, Memos, Name, Notification,
    Profile, Release, Released, Renewed,
};

/// A boxed future, as trait objects require.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A system that stores locks. Its verbs are `claim`, `renew`, `release` and `notifications`; `profile` and `group`
/// describe it. An engine that can grant several names in one step has one more verb, `claim_all`.
///
/// An engine only talks to its server and classifies that server's errors. Waiting, deadlines, renewal, hand-over
/// inside the process, cleanup and metrics are implemented once, in core. An engine must obey these rules:
///
/// 1. **By id** (R21). Every verb is idempotent by claim id. Two claims never share an id, so a repeated or late
///    request is recognised: a doubled `claim` answers the same grant, a doubled `release` answers
///    [`Released::NotThere`](crate::Released::NotThere).
/// 2. **Create or ask** (R22). `claim` with [`How::Ask`] creates nothing. With [`How::Create`] it takes the name if it
///    is free *and* no claim is ahead in the queue, else enters the queue if `may_queue`, else leaves nothing.
/// 3. **Mint with the grant** (R10). Tokens are minted in the atomic step that fixes the order of grants. Within a name
///    and lineage they always grow.
/// 4. **Settle** (R8). Every operation that finds a name free (claim, ask, release, expiry) grants it to the head of
///    the queue. Every operation that reads the queue removes dead waiters from it.
/// 5. **No late creation** (R9). After `release` answered `Freed` or `NotThere`, no earlier request with that id may
///    create anything, even if it arrives later: an engine whose requests can overtake each other leaves a tombstone.
/// 6. **Own only** (R4). `renew` of a hold compares id and token. `release` ends everything that its claim has, but, if
///    it carries a token, answers `Freed` only for the hold with that token. Nothing that belongs to another claim is
///    ever touched.
/// 7. **Unknown is not no** (R12). A missing answer is [`Fault::Unknown`](crate::Fault::Unknown), unless the request
///    was certainly never sent.
/// 8. **Notifications are hints** (R7). `claim` also subscribes to the notifications for its claim; they may be lost,
///    doubled or late.
/// 9. **Cancel** (R23). The future of any verb may be dropped at any point; core then treats its outcome as unknown.
///
/// No method has a default body, so that a decorator cannot forget to forward one.
pub trait Engine: Inspect + Send + Sync + 'static {
    /// The properties of this engine, as configured.
    fn profile(&self) -> &Profile;

    /// The group of a name, on engines where one request can renew only holds of the same group, such as those of one
    /// hash slot of a Redis Cluster. `None` where one request can renew any holds.
    ///
    /// Core renews the holds of a group at the same moment and passes as many as fit to one call of
    /// [`renew`](Self::renew). This saves requests; nothing else depends on it. A name always has the same group. Core
    /// calls this method at each renewal, so it has to be cheap and must never block.
    fn group(&self, name: &Name) -> Option<u16>;

    /// Takes the name, enters the queue, or reports the state of the claim, as `how` permits.
    ///
    /// # Errors
    /// An [`EngineError`] whose [`Fault`](crate::Fault) tells whether the claim may have been applied.
    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>>;

    /// Takes the names of all claims in one atomic step, or none of them: the answers are those of
    /// [`claim`](Self::claim) with [`How::Create`], without a queue. If one name cannot be granted at once, no claim
    /// holds, no claim is in a queue, and nothing of any claim remains. Every rule of this trait applies to each claim.
    /// An engine that can take some sets in one step and not others answers [`AllAnswer::OneByOne`] to the others.
    ///
    /// Core calls this verb only if the profile permits that many
    /// [claims at once](crate::Profile::claims_at_once), with at least two claims of different names of one
    /// [`group`](Self::group), in the byte order of their names, all without `may_queue`. An engine that permits only
    /// one claim answers `Fault::Internal`: see [`cannot_claim_all`].
    ///
    /// # Errors
    /// An [`EngineError`] whose [`Fault`](crate::Fault) tells whether the claims may have been applied. An error that
    /// concerns one of the names is [`AllAnswer::Refused`].
    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>>;

    /// Extends holds. Returns one answer per hold, in the order of `holds`.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>>;

    /// Removes every trace of claims. Returns one answer per release, in the order of `releases`.
    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>>;

    /// The next batch of notifications. Core reads in one task at a time; dropping the future loses no notification.
    /// The future of an engine without push never resolves.
    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>>;

    /// The memos beside the names of this engine; `None` if it stores none. The [`Profile`] then has the reason.
    fn memos(&self) -> Option<&dyn Memos>;

    /// The conversions of holds; `None` if the engine has none. The [`Profile`] then has the reason.
    fn conversions(&self) -> Option<&dyn Conversions>;
}

/// The [`claim_all`](Engine::claim_all) of an engine that cannot take several names in one step. Core never calls it.
#[must_use]
pub fn cannot_claim_all<'a>() -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
    let message = "this engine takes one name at a time";
    Box::pin(async move { Err(EngineError::new(crate::Fault::Internal, message)) })
}

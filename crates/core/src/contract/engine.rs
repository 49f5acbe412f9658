//! The contract between core and engines: five verbs over claims.

use std::{future::Future, pin::Pin};

use crate::{
    Answer, Claim, EngineError, Hold, How, Inspect, Name, Notification, Profile, Release, Released, Renewed,
};

/// A boxed future, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A system that stores locks: five verbs over claims.
///
/// An engine only speaks to its server and sorts that server's errors. Waiting, deadlines, renewal, local hand-over,
/// clean-up and metrics live in core, once. The rules an engine must keep:
///
/// 1. **By id** (R21). Every verb is idempotent by claim id. Two claims never share an id, so a repeated or late request is
///    recognised: a doubled `claim` answers the same grant, a doubled `release` answers [`Released::NotThere`](crate::Released::NotThere).
/// 2. **Create or ask** (R22). `claim` with [`How::Ask`] creates nothing. With [`How::Create`] it takes the name if it is free
///    *and* nobody stands in line before it, else takes a place in line if `may_queue`, else leaves nothing.
/// 3. **Mint with the grant** (R10). Tokens are minted in the atomic step that fixes the order of grants, and grow for ever
///    within a name and lineage.
/// 4. **Settle** (R8). Whatever finds a name free (claim, ask, release, expiry) grants to the head of the line. Dead waiters
///    are pruned by whoever reads the line.
/// 5. **No ghosts** (R9). After `release` answered `Freed` or `NotThere`, no earlier request of that id may create anything,
///    even if it arrives later: an engine whose requests can overtake each other leaves a tombstone.
/// 6. **Own only** (R4). `renew` of a hold compares id and token. `release` ends whatever its claim has, but answers `Freed` for
///    the hold with its token only, if it has one. Whatever belongs to another claim is never touched.
/// 7. **Unknown is not no** (R12). An answer that did not come is [`Fault::Unknown`](crate::Fault::Unknown), unless the request certainly never left.
/// 8. **News is a hint** (R7). `claim` registers interest; news may be lost, doubled or late.
/// 9. **Cancel** (R23). The future of any verb may be dropped at any point; core then treats its outcome as unknown.
///
/// No method has a default body, so that a decorator cannot forget to forward one.
pub trait Engine: Inspect + Send + Sync + 'static {
    /// The facts about this engine, as configured.
    fn profile(&self) -> &Profile;

    /// The group of a name, where one request can renew the holds of one group only, as those of one hash slot of a Redis Cluster.
    /// `None` where one request can renew any holds.
    ///
    /// Core renews the holds of a group at the same moment, and passes them to one call of [`renew`](Self::renew), as far as they
    /// fit. This saves requests, and nothing else depends on it. A name has the same group at all times. Core asks at each renewal,
    /// so the answer has to be cheap and must never block.
    fn group(&self, name: &Name) -> Option<u16>;

    /// Takes the name, or a place in line, or says where the claim stands.
    ///
    /// # Errors
    /// An [`EngineError`] sorted by what it says about the claim.
    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>>;

    /// Extends holds; one answer per hold, in order.
    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>>;

    /// Leaves no trace of claims; one answer per release, in order.
    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>>;

    /// The next batch of news. One reader at a time; dropping the future loses nothing. An engine without push never resolves.
    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>>;
}

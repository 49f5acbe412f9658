//! Fencing on the ensemble that stores the locks.

use leasehold_core::ClaimId;

use crate::{ZookeeperEngine, claims::State};

/// The version of a node's data that was never changed. An operator who breaks a hold changes the data.
pub(crate) const UNTOUCHED: i32 = 0;

/// The check of a hold, for a `multi` of any ZooKeeper client. The check succeeds as long as the node of the hold
/// exists and no operator has broken the hold. With this check, the other operations of the multi are applied only
/// while the lock is held, and otherwise not at all, even if the client has not noticed the loss of the hold
/// (<https://zookeeper.apache.org/doc/r3.8.0/apidocs/zookeeper-server/org/apache/zookeeper/Op.html>, `Op.check`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The path of the hold's node, for a connection with the same chroot.
    pub path: String,
    /// The version of the node's data.
    pub version: i32,
}

impl ZookeeperEngine {
    /// The check under which this claim of this engine holds; `None` if the claim does not hold.
    #[must_use]
    pub fn held_by(&self, id: ClaimId) -> Option<HeldBy> {
        let mut claims = self.client.claims();
        let State::Held { own, .. } = &claims.get(id)?.state else { return None };
        let path = own.path.strip_prefix(&self.client.config.chroot)?.to_owned();
        Some(HeldBy { path, version: UNTOUCHED })
    }
}

//! Fencing on the ensemble that holds the locks.

use leasehold_core::ClaimId;

use crate::{ZookeeperEngine, claims::State};

/// The version of a node of ours that nobody wrote into: an operator who breaks a hold does.
const UNTOUCHED: i32 = 0;

/// A lock is held as long as this node is there and nobody broke it: the check for a `multi` of any ZooKeeper client. With it, the
/// other operations of the multi are done while the lock is held, or not at all, whatever the client believes
/// (<https://zookeeper.apache.org/doc/r3.8.0/apidocs/zookeeper-server/org/apache/zookeeper/Op.html>, `Op.check`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The node of the hold, on a connection with the same chroot.
    pub path: String,
    /// The version of its data.
    pub version: i32,
}

impl ZookeeperEngine {
    /// The check under which this claim, which was granted by this engine, still holds; `None` if it does not.
    #[must_use]
    pub fn held_by(&self, id: ClaimId) -> Option<HeldBy> {
        let mut claims = self.client.claims();
        let State::Held { own, .. } = &claims.get(id)?.state else { return None };
        let path = own.path.strip_prefix(&self.client.config.chroot)?.to_owned();
        Some(HeldBy { path, version: UNTOUCHED })
    }
}

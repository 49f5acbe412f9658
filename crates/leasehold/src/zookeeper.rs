//! What only ZooKeeper has: the check of a hold for a `multi` of the user.

use crate::{Guard, Locks, ZookeeperCheck, open::EngineHandle};

impl Locks {
    /// The check that this hold still exists, for a `multi` of any ZooKeeper client. `None` if the hold does not exist,
    /// and on other engines.
    ///
    /// ```no_run
    /// # async fn write() -> Result<(), leasehold::Error> {
    /// let locks = leasehold::Locks::connect("zookeeper://127.0.0.1:2181")?;
    /// let guard = locks.mutex("config").acquire().await?;
    /// if let Some(check) = locks.zookeeper_check(&guard) {
    ///     println!("the multi first checks {check:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn zookeeper_check(&self, guard: &Guard) -> Option<ZookeeperCheck> {
        let EngineHandle::Zookeeper(zookeeper) = &self.handle else { return None };
        zookeeper.held_by(guard.id())
    }
}

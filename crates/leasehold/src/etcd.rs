//! Fences on the etcd that has the locks.

use leasehold_core::{Error, Token};
use leasehold_etcd::Guarded;

use crate::{EtcdCompare, Guard, Locks, fence::overtaken, open::EngineHandle};

impl Locks {
    /// The fence of `resource` on the etcd that has these locks. `resource` is any text on which all holders agree.
    /// `None` on other engines. [`EtcdFence`] has an example.
    #[must_use]
    pub fn etcd_fence(&self, resource: &str) -> Option<EtcdFence> {
        let EngineHandle::Etcd(etcd) = &self.handle else { return None };
        let fence = leasehold_etcd::Fence::new(etcd, resource);
        Some(EtcdFence { locks: self.core.clone(), fence, resource: resource.to_owned() })
    }

    /// The condition that this hold still exists, for a transaction of any etcd client. `None` if the hold does not
    /// exist, and on other engines.
    ///
    /// ```no_run
    /// # async fn write() -> Result<(), leasehold::Error> {
    /// let locks = leasehold::Locks::connect("etcd://127.0.0.1:2379")?;
    /// let guard = locks.mutex("routes").acquire().await?;
    /// if let Some(compare) = locks.etcd_compare(&guard) {
    ///     println!("the transaction has the condition {compare:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn etcd_compare(&self, guard: &Guard) -> Option<EtcdCompare> {
        let EngineHandle::Etcd(etcd) = &self.handle else { return None };
        etcd.held_by(guard.id())
    }
}

/// A fence around data on the etcd that has the locks. [`Locks::etcd_fence`](crate::Locks::etcd_fence) makes it.
///
/// ```no_run
/// # async fn publish() -> Result<(), leasehold::Error> {
/// let locks = leasehold::Locks::connect("etcd://127.0.0.1:2379")?;
/// let fence = locks.etcd_fence("routes").expect("these locks are on etcd");
/// let guard = locks.mutex("routes").acquire().await?;
/// // Seal, then read: from here on no earlier holder of the lock can change the data.
/// fence.seal(guard.token()).await?;
/// // ... read and compute ...
/// fence.write(guard.token(), &[("config/routes", "a -> b"), ("config/version", "17")]).await?;
/// # Ok(())
/// # }
/// ```
///
/// For a transaction of your own client, use [`Locks::etcd_compare`](crate::Locks::etcd_compare).
#[derive(Clone, Debug)]
pub struct EtcdFence {
    pub(crate) locks: leasehold_core::Locks,
    pub(crate) fence: leasehold_etcd::Fence,
    pub(crate) resource: String,
}

impl EtcdFence {
    /// Shows this token to the fence, which from now on refuses smaller tokens. Call this before the first read: then
    /// an earlier holder cannot change the data after that read.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn seal(&self, token: Token) -> Result<(), Error> {
        self.write::<&str>(token, &[]).await.map(drop)
    }

    /// Writes each value under its key, all in one step, and returns the revision. If the fence was shown a larger
    /// token before, writes nothing. Like [`seal`](Self::seal), it also shows the token. `values` can have up to a
    /// hundred keys, each of them once.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the fence has seen a larger token: the hold of this token is
    /// over, and nothing was written. [`is_unknown`](Error::is_unknown) if the answer was lost; the same write can then
    /// be repeated, with the same effect.
    pub async fn write<T: AsRef<[u8]>>(&self, token: Token, values: &[(T, T)]) -> Result<i64, Error> {
        let fence = self.fence.clone();
        let owned: Vec<(Vec<u8>, Vec<u8>)> =
            values.iter().map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec())).collect();
        let step = async move { fence.write(token.number, &owned).await };
        match self.locks.beside_engine(&self.resource, step).await? {
            Guarded::Done(revision) => Ok(revision),
            Guarded::Overtaken(larger) => Err(overtaken(&self.resource, token, larger)),
        }
    }
}

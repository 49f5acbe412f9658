//! Fences on the etcd that has the locks.

use leasehold_core::{Error, Token};
use leasehold_etcd::Guarded;

use crate::fence::overtaken;

/// A fence around data on the etcd that has the locks; from [`Locks::etcd_fence`](crate::Locks::etcd_fence).
///
/// ```no_run
/// # async fn publish() -> Result<(), leasehold::Error> {
/// let locks = leasehold::Locks::connect("etcd://127.0.0.1:2379")?;
/// let fence = locks.etcd_fence("routes").expect("these locks are on etcd");
/// let guard = locks.mutex("routes").acquire().await?;
/// // Seal, then read: from here on no earlier holder of the lock can change anything.
/// fence.seal(guard.token()).await?;
/// // ... read and compute ...
/// fence.write(guard.token(), &[("config/routes", "a -> b"), ("config/version", "17")]).await?;
/// # Ok(())
/// # }
/// ```
///
/// A transaction of your own client uses [`Locks::etcd_compare`](crate::Locks::etcd_compare).
#[derive(Clone, Debug)]
pub struct EtcdFence {
    pub(crate) locks: leasehold_core::Locks,
    pub(crate) fence: leasehold_etcd::Fence,
    pub(crate) resource: String,
}

impl EtcdFence {
    /// Shows the fence this token: from now on it refuses smaller ones. Call this before the first read: a holder
    /// that was overtaken cannot change the data that is read after it.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub async fn seal(&self, token: Token) -> Result<(), Error> {
        self.write::<&str>(token, &[]).await.map(drop)
    }

    /// Writes each value under its key, all in one step, and returns the revision; writes nothing if the fence was
    /// shown a larger token before. Seals, too. Up to a hundred keys, each once.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the fence has seen a larger token: the hold of this token
    /// is over, and nothing was written. [`is_unknown`](Error::is_unknown) if the answer was lost; repeating the same
    /// write has the same effect.
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

//! Fences on the Redis that has the locks.

use std::sync::Arc;

use leasehold_core::{Error, Token};
use leasehold_redis::{Guarded, Reply};

use crate::{Locks, fence::overtaken, open::EngineHandle};

impl Locks {
    /// The fence of `resource` on the Redis that has these locks. `resource` is any text on which all holders agree.
    /// `None` on other engines. [`RedisFence`] has an example.
    #[must_use]
    pub fn redis_fence(&self, resource: &str) -> Option<RedisFence> {
        let EngineHandle::Redis(redis) = &self.handle else { return None };
        let fence = leasehold_redis::Fence::new(Arc::clone(redis), resource);
        Some(RedisFence { locks: self.core.clone(), fence, resource: resource.to_owned() })
    }
}

/// A fence around data on the Redis that has the locks. [`Locks::redis_fence`](crate::Locks::redis_fence) makes it.
///
/// ```no_run
/// # async fn sell() -> Result<(), leasehold::Error> {
/// let locks = leasehold::Locks::connect("redis://127.0.0.1:6379")?;
/// let fence = locks.redis_fence("stock").expect("these locks are on Redis");
/// let guard = locks.mutex("stock").acquire().await?;
/// // Seal, then read: from here on no earlier holder of the lock can change the data.
/// let stock = &fence.write(guard.token(), &[&["GET", "stock"]]).await?[0];
/// if stock.text().is_some_and(|pieces| pieces != "0") {
///     fence.write(guard.token(), &[&["DECR", "stock"], &["RPUSH", "orders", "order-17"]]).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFence {
    pub(crate) locks: leasehold_core::Locks,
    pub(crate) fence: leasehold_redis::Fence,
    pub(crate) resource: String,
}

impl RedisFence {
    /// Shows this token to the fence, which from now on refuses smaller tokens. Call this before the first read: then
    /// an earlier holder cannot change the data after that read.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn seal(&self, token: Token) -> Result<(), Error> {
        self.write::<&str>(token, &[]).await.map(drop)
    }

    /// Executes `commands`, each a list of words, in one step on the server, and returns the reply to each. If the
    /// fence was shown a larger token before, executes nothing. Like [`seal`](Self::seal), it also shows the token.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`](crate::ErrorKind::Fenced) if the fence has seen a larger token: the hold of this token is
    /// over, and no command was executed. [`is_unknown`](Error::is_unknown) if the answer was lost. If the server
    /// refuses a command, its error ends the step; the commands before it have been executed.
    pub async fn write<W: AsRef<[u8]>>(&self, token: Token, commands: &[&[W]]) -> Result<Vec<Reply>, Error> {
        let fence = self.fence.clone();
        let owned: Vec<Vec<Vec<u8>>> =
            commands.iter().map(|words| words.iter().map(|word| word.as_ref().to_vec()).collect()).collect();
        let step = async move {
            let commands: Vec<&[Vec<u8>]> = owned.iter().map(Vec::as_slice).collect();
            fence.write(token.number, &commands).await
        };
        match self.locks.beside_engine(&self.resource, step).await? {
            Guarded::Done(replies) => Ok(replies),
            Guarded::Overtaken(larger) => Err(overtaken(&self.resource, token, larger)),
        }
    }
}

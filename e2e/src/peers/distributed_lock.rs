//! `distributed-lock` on Redis: it renews in the background and says when a hold was lost. On one server its acquire tries once,
//! so it is called again after a pause.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

use super::{Peer, RETRY};
use crate::{Failure, task::TTL};

pub(super) struct Distributed(RedisLockProvider);

impl Peer for Distributed {
    type Hold = RedisLockHandle;

    async fn connect(url: &str) -> Result<Self, Failure> {
        let provider = RedisLockProvider::builder().url(url).expiry(TTL).min_validity(TTL * 9 / 10);
        Ok(Self(provider.extension_cadence(TTL / 3).build().await?))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<Option<RedisLockHandle>, Failure> {
        let tries = async {
            loop {
                // A lock of its own each time: one object is one owner.
                if let Ok(Some(handle)) = self.0.create_lock(name).try_acquire().await {
                    return handle;
                }
                tokio::time::sleep(RETRY / 2).await;
            }
        };
        Ok(tokio::time::timeout(limit, tries).await.ok())
    }

    fn left(_: &RedisLockHandle) -> Option<Duration> {
        None
    }

    fn is_held(hold: &RedisLockHandle) -> bool {
        !*hold.lost_token().borrow()
    }

    async fn release(&self, hold: RedisLockHandle) -> Result<(), Failure> {
        Ok(hold.release().await?)
    }
}

//! `distributed-lock`: its mutex on one Redis server.
//!
//! It renews in the background, and reports no time, only the loss of a hold. Its defaults are a lease of 30 s, a
//! renewal every 10 s and 27 s that must be left of a lease when it is granted; here they are the same fractions of our
//! lease time. An acquire tries once on one server, whatever its limit, so it is called again after a pause. Its own
//! client never reconnects; the client that it is given here does.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use fred::prelude::{ClientLike, ReconnectPolicy, RedisClient, RedisConfig};
use leasehold_e2e::{Failure, task::TTL};

use super::{Peer, RETRY, retried};

pub(crate) struct Distributed(RedisLockProvider);

impl Peer for Distributed {
    type Hold = RedisLockHandle;

    async fn connect(url: &str) -> Result<Self, Failure> {
        let policy = ReconnectPolicy::new_constant(0, RETRY.as_millis() as u32);
        let client = RedisClient::new(RedisConfig::from_url(url)?, None, None, Some(policy));
        client.connect();
        client.wait_for_connect().await?;
        let provider = RedisLockProvider::builder().client(client).expiry(TTL);
        Ok(Self(provider.extension_cadence(TTL / 3).min_validity(TTL * 9 / 10).build().await?))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<Option<RedisLockHandle>, Failure> {
        // A try may take the part of the lease that need not be left. Each try has its own lock object, because one
        // object is one owner.
        retried(limit.saturating_sub(TTL / 10), || async {
            Ok(self.0.create_lock(name).try_acquire().await?)
        })
        .await
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

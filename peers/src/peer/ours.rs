//! leasehold, used as its README shows: it waits, renews and reports its deadline by itself.

use std::time::Duration;

use leasehold::{Guard, Locks};
use leasehold_e2e::{Failure, task::TTL};

use super::Peer;

pub(crate) struct Ours(Locks);

impl Peer for Ours {
    type Hold = Guard;

    async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(Locks::connect(url)?))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<Option<Guard>, Failure> {
        match self.0.mutex(name).ttl(TTL).acquire_within(limit).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_taken() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn left(hold: &Guard) -> Option<Duration> {
        hold.remaining()
    }

    fn is_held(hold: &Guard) -> bool {
        hold.check()
    }

    async fn release(&self, hold: Guard) -> Result<(), Failure> {
        Ok(hold.release().await?)
    }
}

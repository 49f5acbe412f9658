//! `rslock`: called for one try at a time, so that the limit is ours and not a number of tries. It cleans up after a
//! try that failed.
//!
//! It renews nothing by itself, and need not: no section is longer than a lease. It reports a validity time that counts
//! from its return; a pause before its user reads it is subtracted here, in its favour. It has no time limit for a
//! request; only its client library has one.

use std::time::{Duration, Instant};

use leasehold_e2e::{Failure, task::TTL};
use rslock::{Lock, LockError, LockManager};

use super::{Peer, RETRY, retried};

pub(crate) struct Rslock(LockManager);

pub(crate) struct Hold {
    lock: Lock,
    until: Instant,
}

impl Peer for Rslock {
    type Hold = Hold;

    async fn connect(url: &str) -> Result<Self, Failure> {
        let mut manager = LockManager::new(servers(url));
        manager.set_retry(1, RETRY);
        Ok(Self(manager))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<Option<Hold>, Failure> {
        let once = || async {
            let begin = Instant::now();
            match self.0.lock(name, TTL).await {
                Ok(lock) => {
                    let until = Instant::now() + Duration::from_millis(lock.validity_time as u64);
                    Ok(Some(Hold { lock, until: until.min(begin + TTL) }))
                }
                Err(LockError::Unavailable) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        retried(limit, once).await
    }

    fn left(hold: &Hold) -> Option<Duration> {
        Some(hold.until.saturating_duration_since(Instant::now()))
    }

    fn is_held(hold: &Hold) -> bool {
        Instant::now() < hold.until
    }

    async fn release(&self, hold: Hold) -> Result<(), Failure> {
        self.0.unlock(&hold.lock).await;
        Ok(())
    }
}

/// The servers of a URL. The URL may contain options for leasehold.
fn servers(url: &str) -> Vec<String> {
    let Some(nodes) = url.strip_prefix("redlock://") else { return vec![url.to_owned()] };
    let nodes = nodes.split_once('?').map_or(nodes, |(nodes, _)| nodes);
    nodes.split(',').map(|node| format!("redis://{node}")).collect()
}

#[cfg(test)]
mod tests {
    use super::servers;

    #[test]
    fn each_master_is_a_server() {
        assert_eq!(servers("redis://h:1"), ["redis://h:1"]);
        assert_eq!(servers("redlock://h:1,i:2?max_ttl=1s"), ["redis://h:1", "redis://i:2"]);
    }
}

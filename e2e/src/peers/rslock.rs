//! `rslock`: it tells a validity time, and retries after a random part of a pause. It renews nothing by itself, and no section is
//! longer than a lease.

use std::time::{Duration, Instant};

use rslock::{Lock, LockManager};

use super::{Peer, RETRY};
use crate::{Failure, task::TTL};

pub(super) struct Rslock(LockManager);

pub(super) struct Hold {
    lock: Lock,
    until: Instant,
}

impl Peer for Rslock {
    type Hold = Hold;

    async fn connect(url: &str) -> Result<Self, Failure> {
        let mut manager = LockManager::new(vec![url.to_owned()]);
        // One try: how long tries go on is said by the caller's limit, as for everybody.
        manager.set_retry(1, RETRY);
        Ok(Self(manager))
    }

    async fn acquire(&self, name: &str, limit: Duration) -> Result<Option<Hold>, Failure> {
        let tries = async {
            loop {
                let begin = Instant::now();
                if let Ok(lock) = self.0.lock(name, TTL).await {
                    // It counts from before its request left.
                    let until = Instant::now() + Duration::from_millis(lock.validity_time as u64);
                    return Hold { lock, until: until.min(begin + TTL) };
                }
                tokio::time::sleep(RETRY / 2).await;
            }
        };
        Ok(tokio::time::timeout(limit, tries).await.ok())
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

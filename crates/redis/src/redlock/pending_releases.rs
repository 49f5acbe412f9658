//! Releases that could not be sent to a node yet. They are retried in the background, with a budget of their own.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{EngineError, Instant, Name};

use super::{node::Node, words::ClaimEnd};
use crate::{
    engine::REQUEST_LIFE, keys::Keys, lock_mutex, outbox::MAX_BATCH_ITEMS, runtime, scripts::Script,
};

/// The most pending releases. Beyond this number the oldest are dropped: their leases end by themselves.
const MAX_PENDING: usize = 65_536;
/// The pause between two attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a release is retried. Then it is dropped: the lease has ended by itself, or stays until its end. This is
/// the longest time that an operator is likely to wait.
const BUDGET: Duration = Duration::from_secs(120);

/// The pending releases of one node.
#[derive(Default)]
pub(super) struct PendingReleases {
    all: Mutex<VecDeque<PendingRelease>>,
    /// A background task is sending.
    is_sending: AtomicBool,
}

#[derive(Clone)]
struct PendingRelease {
    name: Name,
    end: ClaimEnd,
    /// When the release is dropped.
    until: Instant,
}

impl Node {
    /// Releases a claim or one attempt of it on this node in the background, now or when the node can be reached.
    pub(super) fn release_later(self: &Arc<Self>, name: &Name, end: ClaimEnd) {
        let until = self.client.clock.now().after(BUDGET);
        {
            let mut all = lock_mutex(&self.pending.all);
            if all.len() >= MAX_PENDING {
                all.pop_front();
            }
            all.push_back(PendingRelease { name: name.clone(), end, until });
        }
        if !self.pending.is_sending.swap(true, Ordering::AcqRel) {
            let node = Arc::clone(self);
            runtime::detach(async move { node.send_pending().await });
        }
    }

    /// Sends pending releases until none is left.
    async fn send_pending(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let now = self.client.clock.now();
            let batch: Vec<PendingRelease> = {
                let mut all = lock_mutex(&self.pending.all);
                all.retain(|release| release.until > now);
                if all.is_empty() {
                    // Under the lock, so that the next release starts a new task.
                    self.pending.is_sending.store(false, Ordering::Release);
                    return;
                }
                all.iter().take(MAX_BATCH_ITEMS).cloned().collect()
            };
            if self.try_send(&batch).await.is_ok() {
                let mut all = lock_mutex(&self.pending.all);
                let sent = batch.len().min(all.len());
                all.drain(..sent);
                pause = FIRST_PAUSE;
            } else {
                runtime::pause(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    async fn try_send(self: &Arc<Self>, batch: &[PendingRelease]) -> Result<(), EngineError> {
        self.dial();
        let conn = self.conn().ok_or_else(|| self.unavailable())?;
        let (now, prefix) = (self.client.clock.now(), &self.client.config.prefix);
        let mut items = crate::outbox::Items::new();
        for PendingRelease { name, end, .. } in batch {
            let Ok(keys) = Keys::of(prefix, name) else { continue };
            let tombstone = match end.attempt {
                None => self.in_flight.release(end.id, conn.number, now, now.after(REQUEST_LIFE)),
                // A claim that may try again needs no tombstone: a lock that a late request of this attempt sets
                // becomes the lock of a later attempt, or the release of the claim ends it.
                Some(_) => !end.may_retry && self.in_flight.is_unsettled(end.id, now),
            };
            items.push(end.item(&keys, tombstone, Duration::ZERO));
        }
        self.ask(&conn, Script::ReleaseVote, items).await?;
        batch
            .iter()
            .filter(|release| release.end.attempt.is_none())
            .for_each(|release| self.in_flight.settle(release.end.id));
        Ok(())
    }
}

//! Releases that could not be sent to a node yet. They are retried in the background, for a limited time.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{EngineError, Instant, Name};

use super::{messages::ClaimEnd, node::Node};
use crate::{
    engine::REQUEST_LIFE, keys::Keys, lock_mutex, outbox::MAX_BATCH_ITEMS, runtime, scripts::Script,
};

/// The most pending releases. Beyond this number the oldest are dropped: their locks stay until the leases end.
const MAX_PENDING: usize = 65_536;
/// The pause after the first failed attempt; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a release is retried. After that it is dropped: a lock whose lease has not ended by then stays on the node
/// until the lease ends. A node that is away for longer is not likely to be back soon.
const RETRY_TIME: Duration = Duration::from_secs(120);

/// The pending releases of one node.
#[derive(Default)]
pub(super) struct PendingReleases {
    /// The releases, the oldest first.
    releases: Mutex<VecDeque<PendingRelease>>,
    /// Whether a background task is sending the releases.
    is_sending: AtomicBool,
}

/// A release that is still to be sent to the node.
#[derive(Clone)]
struct PendingRelease {
    name: Name,
    end: ClaimEnd,
    /// When the release is dropped.
    drop_at: Instant,
}

impl Node {
    /// Releases a claim, or one attempt of a claim, on this node. This happens in the background, now or when the node
    /// can be reached.
    pub(super) fn release_later(self: &Arc<Self>, name: &Name, end: ClaimEnd) {
        let drop_at = self.client.clock.now().after(RETRY_TIME);
        {
            let mut releases = lock_mutex(&self.pending_releases.releases);
            if releases.len() >= MAX_PENDING {
                releases.pop_front();
            }
            releases.push_back(PendingRelease { name: name.clone(), end, drop_at });
        }
        if !self.pending_releases.is_sending.swap(true, Ordering::AcqRel) {
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
                let mut releases = lock_mutex(&self.pending_releases.releases);
                releases.retain(|release| release.drop_at > now);
                if releases.is_empty() {
                    // The flag is cleared under the lock, so that the next release starts a new task.
                    self.pending_releases.is_sending.store(false, Ordering::Release);
                    return;
                }
                releases.iter().take(MAX_BATCH_ITEMS).cloned().collect()
            };
            if self.try_send(&batch).await.is_ok() {
                let mut releases = lock_mutex(&self.pending_releases.releases);
                let sent = batch.len().min(releases.len());
                releases.drain(..sent);
                pause = FIRST_PAUSE;
            } else {
                runtime::pause(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Sends a batch of releases once.
    async fn try_send(self: &Arc<Self>, batch: &[PendingRelease]) -> Result<(), EngineError> {
        self.dial();
        let conn = self.conn().ok_or_else(|| self.unavailable())?;
        let (now, prefix) = (self.client.clock.now(), &self.client.config.prefix);
        let mut items = crate::outbox::Items::new();
        for PendingRelease { name, end, .. } in batch {
            let Ok(keys) = Keys::of(prefix, name) else { continue };
            let tombstone = match end.attempt {
                None => self.in_flight.release(end.id, conn.number, now, now.after(REQUEST_LIFE)),
                // A claim that may make another attempt needs no tombstone. If a late request of this attempt sets the
                // lock, a later attempt takes that lock over, or the release of the claim removes it.
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

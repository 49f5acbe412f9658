//! Keeping a name taken after its hold ended.
//!
//! The key stays where it is in the line, on a lease of its own. This client ends that lease in time; if it is gone by then,
//! whoever waits deletes the key ([`crate::min_hold_expiry`]), or the server ends the lease: it counts whole seconds and knows no lease shorter
//! than about two.

use std::time::Duration;

use leasehold_core::{ClaimId, EngineError};

use crate::{
    client::Client,
    lock_of,
    session::seconds,
    wire::{KeyValue, Put, Revoke},
};

impl Client {
    /// Keeps the name that is held by this key taken for a time. `None` if it is not held so.
    pub(crate) async fn release_with_min_hold(
        &self,
        key: &[u8],
        (id, token): (ClaimId, u64),
        keep: Duration,
        mark_dead: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        let Ok(token) = i64::try_from(token) else { return Ok(None) };
        let (lease, _) = self.grant(seconds(keep).max(1)).await?;
        let mut txn = Self::min_hold_txn(key, (id, token), keep, lease);
        if let Some(mark_dead) = mark_dead {
            let raise = Put {
                key: crate::keys::epoch(self.prefix(), mark_dead),
                value: Vec::new(),
                lease: mark_dead,
            };
            txn.success.push(raise.into());
        }
        let (_, reply) = self.ask(txn).await?;
        if !reply.succeeded {
            // A lease without keys ends by itself.
            return Ok(None);
        }
        if let Some(session) = mark_dead.and_then(|lease| self.sessions.get(lease)) {
            session.epoch_raised(reply.revision());
        }
        lock_of(&self.min_hold_leases).push((self.now().after(keep), lease));
        self.sooner.notify_one();
        Ok(Some(KeyValue { create_revision: token, ..KeyValue::default() }))
    }

    /// Names whose time is over are free. What cannot be done, the server does a little later.
    pub(crate) async fn end_min_hold(&self, lease: i64) {
        if let Err(error) = self.ask(Revoke { id: lease }).await {
            tracing::debug!(%error, "a kept name ends with its lease");
        }
    }
}

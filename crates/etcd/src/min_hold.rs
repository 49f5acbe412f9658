//! Releases with a minimum hold time.
//!
//! The key of the released hold stays at its position, on a new lease. This client revokes the new lease when the
//! minimum hold time is over. If the client has exited by then, a waiter deletes the key ([`crate::min_hold_expiry`]),
//! or the server ends the lease. The server ends it later than necessary, because it counts whole seconds and grants no
//! lease shorter than about two.

use std::time::Duration;

use leasehold_core::{ClaimId, EngineError};

use crate::{
    client::Client,
    lock_mutex,
    record::claim_record_bounds,
    session::whole_seconds,
    wire::{DeleteRange, KeyValue, Put, Revoke, compare},
};

impl Client {
    /// Turns the hold of this key into a minimum hold of this duration, and deletes the queue key of the claim, if
    /// there is one. Raises the epoch of the lease `raise_epoch_of` in the same step. Returns `None` if the claim does
    /// not hold; then its keys stay as they are.
    pub(crate) async fn release_with_min_hold(
        &self,
        (key, queue_key): (&[u8], Option<&[u8]>),
        (id, token): (ClaimId, u64),
        min_hold: Duration,
        raise_epoch_of: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        let Some(revision) = self.token_blocks().number_of(token) else { return Ok(None) };
        let (lease, _) = self.create_lease(whole_seconds(min_hold).max(1)).await?;
        let mut txn = Self::min_hold_txn(key, (id, revision), min_hold, lease);
        if let Some(queue_key) = queue_key {
            // Another program may have written the lock key meanwhile.
            let (from, to) = claim_record_bounds(id);
            txn.compare.extend([compare::value_after(key, &from), compare::value_before(key, &to)]);
            txn.success.push(DeleteRange { key: queue_key.to_vec(), ..DeleteRange::default() }.into());
        }
        if let Some(epoch_lease) = raise_epoch_of {
            let put_epoch = Put {
                key: crate::keys::epoch_key(self.prefix(), epoch_lease),
                value: Vec::new(),
                lease: epoch_lease,
            };
            txn.success.push(put_epoch.into());
        }
        let (_, reply) = self.ask(txn).await?;
        if !reply.succeeded {
            // The new lease has no keys and ends by itself.
            return Ok(None);
        }
        if let Some(session) = raise_epoch_of.and_then(|lease| self.sessions.get(lease)) {
            session.raise_epoch_to(reply.revision());
        }
        lock_mutex(&self.min_hold_leases).push((self.now().after(min_hold), lease));
        self.wake_maintenance.notify_one();
        Ok(Some(KeyValue { create_revision: revision, ..KeyValue::default() }))
    }

    /// Ends a minimum hold whose time is over. If the request fails, the lease ends on the server a little later.
    pub(crate) async fn end_min_hold(&self, lease: i64) {
        if let Err(error) = self.ask(Revoke { id: lease }).await {
            tracing::debug!(%error, "a minimum hold ends with its lease");
        }
    }
}

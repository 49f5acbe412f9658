//! The end of a claim with `layout=key`: its lock key and its queue key are deleted.
//!
//! The lock key can belong to another program at any time, so each deletion has the record of the claim as a condition.

use leasehold_core::{ClaimId, EngineError, Fault, Release};

use crate::{
    claims::QueueAndLockKey,
    client::{Client, Failed},
    error::{is_reply_too_long, unreadable},
    record::{Record, RecordState, claim_record_bounds},
    wire::{Compare, DeleteRange, KeyValue, Range, Txn, compare},
};

/// How many times at most the deletion of a lock key is sent: it is sent again if an operator breaks the hold
/// meanwhile.
const MAX_TRIES: usize = 8;

impl Client {
    /// Ends a claim, with a minimum hold if the release asks for one. `held` is the revision at which the claim created
    /// the lock key; `None` if the claim does not hold. Returns, for a release with a token, the lock key as it was;
    /// for another release any key of the claim.
    pub(crate) async fn end_claim_with_lock_key(
        &self,
        release: &Release,
        keys: &QueueAndLockKey,
        held: Option<i64>,
        raise_epoch_of: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        if let (Some(min_hold), Some(token)) = (release.min_hold, release.token) {
            let (keys, id) = ((&*keys.lock_key, Some(&*keys.queue_key)), (release.id, token.number));
            let held = self.release_with_min_hold(keys, id, min_hold, raise_epoch_of).await?;
            if held.is_some() {
                return Ok(held);
            }
        }
        if let (Some(revision), None) = (held, raise_epoch_of) {
            let deleted = self.delete_both(release.id, keys, revision).await?;
            if deleted.is_some() {
                return Ok(deleted);
            }
        }
        let Deleted { lock_key, queue_key } =
            self.delete_queue_and_lock_key(release.id, keys, raise_epoch_of).await?;
        Ok(if release.token.is_some() { lock_key } else { lock_key.or(queue_key) })
    }

    /// Deletes the lock key of a hold, which was created at `revision`, together with the queue key. Returns the lock
    /// key as it was; `None` if the claim does not hold, or if its hold was broken: then nothing was deleted.
    async fn delete_both(
        &self,
        id: ClaimId,
        keys: &QueueAndLockKey,
        revision: i64,
    ) -> Result<Option<KeyValue>, EngineError> {
        let (from, to) = claim_record_bounds(id);
        let txn = Txn {
            compare: vec![
                compare::created(&keys.lock_key, revision),
                compare::value_after(&keys.lock_key, &from),
                compare::value_before(&keys.lock_key, &to),
            ],
            success: [&keys.lock_key, &keys.queue_key].map(|key| deletion(key).into()).into(),
            failure: Vec::new(),
        };
        let (_, mut reply) = self.ask(txn).await?;
        if !reply.succeeded {
            return Ok(None);
        }
        reply.deleted(0).map(|mut deleted| deleted.pop()).ok_or_else(unreadable)
    }

    /// Deletes first the queue key of a claim and then its lock key, whether it has them or not. As soon as the queue
    /// key is deleted, no request of the claim can create the lock key any more (R9). `raise_epoch_of`: see
    /// [`delete`](Self::delete).
    pub(crate) async fn delete_queue_and_lock_key(
        &self,
        id: ClaimId,
        keys: &QueueAndLockKey,
        raise_epoch_of: Option<i64>,
    ) -> Result<Deleted, EngineError> {
        let queue_key = self.delete(id, &keys.queue_key, keys.queue_revision, raise_epoch_of).await?;
        let lock_key = self.delete_lock_key_of(id, &keys.lock_key).await?;
        Ok(Deleted { lock_key, queue_key })
    }

    /// Deletes the lock key if it is the hold of this claim, broken or not. Returns the key as it was.
    async fn delete_lock_key_of(
        &self,
        id: ClaimId,
        lock_key: &[u8],
    ) -> Result<Option<KeyValue>, EngineError> {
        for _ in 0..MAX_TRIES {
            let reply = match self.call(Range::key(lock_key)).await {
                // A value that is too long is not ours.
                Err(Failed::Sent(status)) if is_reply_too_long(&status) => return Ok(None),
                answered => answered.map_err(Failed::classified)?.1,
            };
            let is_of_claim = |kv: &KeyValue| {
                Record::read(&kv.value)
                    .is_some_and(|record| record.id == id && record.state != RecordState::MinHold)
            };
            let Some(kv) = reply.kvs.into_iter().find(is_of_claim) else { return Ok(None) };
            let is_unchanged: Compare = compare::changed(lock_key, kv.mod_revision);
            let success = vec![deletion(lock_key).into()];
            let (_, reply) =
                self.ask(Txn { compare: vec![is_unchanged], success, failure: Vec::new() }).await?;
            if reply.succeeded {
                return Ok(Some(kv));
            }
        }
        Err(EngineError::new(Fault::Retry, "the lock key changed again and again"))
    }
}

/// The keys of a claim that were deleted, as they were.
pub(crate) struct Deleted {
    lock_key: Option<KeyValue>,
    queue_key: Option<KeyValue>,
}

fn deletion(key: &[u8]) -> DeleteRange {
    DeleteRange { key: key.to_vec(), prev_kv: true, ..DeleteRange::default() }
}

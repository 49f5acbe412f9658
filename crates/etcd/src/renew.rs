//! Renewals. The maintenance task keeps the lease alive. A renewal extends a hold on that lease, and checks that the
//! key of the hold still exists: an operator may have broken the hold, and a server may report an expired lease as
//! alive (etcd issue 20616).

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{EngineError, Fault, Hold, Instant, Loss, Renewed, TimeLeft};

use crate::{
    claims::State,
    client::Client,
    config::Layout,
    error::unreadable,
    record::{Record, RecordState},
    session::Session,
    wire::{KeyValue, Range, Txn},
};

/// The most holds that one request renews: the server accepts up to 128 steps.
const BATCH: usize = 100;

impl Client {
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let batches = holds.chunks(BATCH).map(|holds| self.renew_batch(holds));
        join_all(batches).await.into_iter().flatten().collect()
    }

    /// Renews up to `BATCH` holds with one request.
    async fn renew_batch(&self, holds: &[Hold]) -> Vec<Renewed> {
        let held_keys: Vec<Option<HeldKey>> = holds.iter().map(|hold| self.held_key(hold)).collect();
        let keys_read = match self.read_keys(holds, &held_keys).await {
            Ok(keys_read) => keys_read,
            // The server refuses the whole transaction if the user has no right to read one of the keys.
            Err(error) if holds.len() > 1 && error.fault == Fault::Denied => {
                let single_renewals =
                    holds.iter().map(|hold| Box::pin(self.renew_batch(std::slice::from_ref(hold))));
                return join_all(single_renewals).await.into_iter().flatten().collect();
            }
            Err(error) => return holds.iter().map(|_| Renewed::Unknown(error.without_source())).collect(),
        };
        let results = holds.iter().zip(held_keys).zip(keys_read);
        results
            .map(|((hold, held_key), key_read)| match (held_key, key_read) {
                (Some(held_key), Some(key_read)) => self.renewal_result(hold, held_key.session.id, &key_read),
                _ => Renewed::Lost(Loss::Gone),
            })
            .collect()
    }

    /// The lease and the key of a hold; `None` if the claim does not hold. A renewal counts as a request of the claim,
    /// so the hold does not lapse while the renewal runs.
    fn held_key(&self, hold: &Hold) -> Option<HeldKey> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(hold.id)?;
        let State::Held { own: revision, .. } = entry.state else { return None };
        if entry.name != hold.name || self.token_blocks().first(revision) != Some(hold.token.number) {
            return None;
        }
        let session = Arc::clone(entry.data.lease_slot.session());
        if session.has_ended() {
            return None;
        }
        let until = now.after(session.remaining(now).unwrap_or_default().min(hold.ttl));
        let key = entry.data.hold_key().to_vec();
        claims.hold(hold.id, revision, true, (now, until));
        Some(HeldKey { session, key })
    }

    /// Reads the keys of the holds. Notes before the read until when each lease is valid: a server can report a lease
    /// as alive, in answer to a later keep-alive, although the lease has ended meanwhile.
    async fn read_keys(
        &self,
        holds: &[Hold],
        held_keys: &[Option<HeldKey>],
    ) -> Result<Vec<Option<KeyRead>>, EngineError> {
        let (mut lease_ids, mut confirmations) = (Vec::new(), Vec::new());
        for HeldKey { session, .. } in held_keys.iter().flatten() {
            if !lease_ids.contains(&session.id) {
                lease_ids.push(session.id);
                confirmations.push(async move { (self.wait_until_confirmed(session).await, session) });
            }
        }
        for (confirmed, session) in join_all(confirmations).await {
            if !session.has_ended() {
                confirmed?;
            }
        }
        let mut keys_read: Vec<Option<KeyRead>> = holds.iter().map(|_| None).collect();
        let to_read: Vec<(usize, &HeldKey, Instant)> = held_keys
            .iter()
            .enumerate()
            .filter_map(|(index, held_key)| {
                held_key.as_ref().map(|held_key| (index, held_key, held_key.session.valid_until()))
            })
            .collect();
        if to_read.is_empty() {
            return Ok(keys_read);
        }
        let read_key = |(_, held_key, _): &(usize, &HeldKey, Instant)| Range::key(&held_key.key).into();
        let (_, mut reply) =
            self.ask(Txn { success: to_read.iter().map(read_key).collect(), ..Txn::default() }).await?;
        for (step, &(index, _, valid_until)) in to_read.iter().enumerate() {
            let kv = reply.range(step).ok_or_else(unreadable)?.kvs.pop();
            keys_read[index] = kv.map(|kv| KeyRead { kv, valid_until });
        }
        Ok(keys_read)
    }

    /// Extends a hold on this lease whose key was read, or returns why the hold is lost.
    fn renewal_result(&self, hold: &Hold, lease: i64, key_read: &KeyRead) -> Renewed {
        let revision = key_read.kv.create_revision;
        if self.token_blocks().first(revision) != Some(hold.token.number) {
            return Renewed::Lost(Loss::Gone);
        }
        let record = Record::read(&key_read.kv.value);
        // Other programs know the lock key, and may write it without a condition.
        if self.layout() == Layout::Key && record.as_ref().is_none_or(|record| record.id != hold.id) {
            return Renewed::Lost(Loss::Gone);
        }
        if record.is_some_and(|record| record.state == RecordState::Broken) {
            return Renewed::Lost(Loss::Broken);
        }
        if self.layout() == Layout::Key && key_read.kv.lease != lease {
            return Renewed::Lost(Loss::Gone);
        }
        let now = self.now();
        let ttl = key_read.valid_until.since(now).min(hold.ttl);
        if ttl.is_zero() {
            return Renewed::Unknown(EngineError::new(
                Fault::Unknown,
                "its lease was not kept alive in time",
            ));
        }
        let mut claims = self.claims();
        match claims.get(hold.id).map(|entry| &entry.state) {
            Some(&State::Held { own: held_revision, .. }) if held_revision == revision => {
                claims.hold(hold.id, revision, true, (now, now.after(ttl)));
                Renewed::Extended { ttl: Some(ttl), left: TimeLeft::Unknown }
            }
            _ => Renewed::Lost(Loss::Gone),
        }
    }
}

/// The lease and the key of a hold.
struct HeldKey {
    session: Arc<Session>,
    key: Vec<u8>,
}

/// A key as read for a renewal, and until when its lease was valid, as far as this client knew before the read.
struct KeyRead {
    kv: KeyValue,
    valid_until: Instant,
}

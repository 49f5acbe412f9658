//! The grant with `layout=key`: the head of the queue creates the lock key.
//!
//! Every program that finds the lock key absent may create it, and other programs do so without a queue. So a claim of
//! ours holds only by the lock key: the transaction that grants creates the lock key, and has as conditions that the
//! lock key does not exist, that the queue key of the claim still exists, and that no queue key is older. The release
//! of a claim deletes its queue key, so a request that arrives after the release creates no lock key (R9).
//!
//! The client of the head of the queue sends this transaction as soon as the server reports that the lock key, or the
//! queue key ahead, was deleted. The grant is a pushed one: it lasts for the claim time unless the claim confirms it.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, ClaimId, EngineError, Mode, Name, Notification};

use crate::{
    claims::{Blocker, Entry, State},
    client::{Client, Failed},
    conn::Conn,
    engine::REQUEST_TIMEOUT,
    error::{is_reply_too_long, unreadable},
    keys::Dir,
    position::{ClaimReply, QueuePosition, blockers_range},
    recheck::is_claim_record,
    runtime,
    wire::{KeyValue, Put, Range, RequestOp, Txn, TxnResponse, compare},
};

/// The indexes of the reads: the queue key of the claim, the queue keys ahead, and the lock key.
const QUEUE_KEY_OP: usize = 0;
const AHEAD_OP: usize = 1;
const LOCK_KEY_OP: usize = 2;

/// A claim in the queue, before its request.
struct Queued {
    id: ClaimId,
    key: Vec<u8>,
    /// The revision at which the key was created.
    revision: i64,
    record: Vec<u8>,
    /// The lease of its keys.
    lease: i64,
    /// The claim waits for an older queue key, so that it is certainly not the head of the queue.
    is_behind: bool,
}

/// The result of a request for a claim in the queue.
enum Attempt {
    /// The claim holds: it created the lock key at this revision.
    Held(i64),
    /// The claim waits: its position at this revision.
    Waits(i64, QueuePosition),
    /// The queue key of the claim does not exist any more.
    Gone,
}

impl Client {
    /// Records that the key by which a claim waits was created at this revision.
    pub(crate) fn note_queue_revision(&self, id: ClaimId, revision: i64) {
        if let Some(entry) = self.claims().get(id) {
            entry.data.queue_revision = Some(revision);
        }
    }

    /// Asks for the state of a claim whose queue key exists: confirms its hold, or grants it the name if it is the head
    /// of the queue and the lock key is absent. A hold is valid for `ttl`.
    pub(crate) async fn recheck_with_lock_key(
        &self,
        claim: &Claim,
        dir: &Dir,
        lock_key: &[u8],
        ttl: Duration,
    ) -> Result<Answer, EngineError> {
        let (held, queued) = match self.claims().get(claim.id) {
            Some(entry) => match entry.state {
                State::Held { own, .. } => (Some((own, entry.data.lease_slot.session().id)), None),
                _ => (None, Queued::of(claim.id, entry)),
            },
            None => return Ok(Answer::Gone),
        };
        if let Some((revision, lease)) = held {
            return self.confirm_hold(claim, dir, (lock_key, revision, lease), ttl).await;
        }
        let Some(queued) = queued else {
            // The claim was ended meanwhile, or its pushed grant lapsed.
            return Ok(self.claims().answer_without_request(claim.id).unwrap_or(Answer::Gone));
        };
        let own_revision = queued.revision;
        let (conn, attempt) = self.take_lock_key(dir, lock_key, queued).await?;
        let (revision, read_revision, position) = match attempt {
            Attempt::Held(revision) => (revision, revision, QueuePosition::default()),
            Attempt::Waits(read_revision, position) => (own_revision, read_revision, position),
            Attempt::Gone => return Ok(self.mark_gone(claim)),
        };
        self.record_position(claim, dir, &conn, ClaimReply { revision, read_revision, ttl, position })
    }

    /// Reads the lock key of a hold, which was created at `revision` on this lease.
    async fn confirm_hold(
        &self,
        claim: &Claim,
        dir: &Dir,
        (lock_key, revision, lease): (&[u8], i64, i64),
        ttl: Duration,
    ) -> Result<Answer, EngineError> {
        let (conn, reply) = match self.call(Range::key(lock_key)).await {
            // A value that is too long is not ours.
            Err(Failed::Sent(status)) if is_reply_too_long(&status) => return Ok(self.mark_gone(claim)),
            answered => answered.map_err(Failed::classified)?,
        };
        let is_held = |kv: &KeyValue| kv.create_revision == revision && is_hold_of(kv, claim.id, lease);
        if !reply.kvs.iter().any(is_held) {
            return Ok(self.mark_gone(claim));
        }
        let read_revision = reply.header.map_or(revision, |header| header.revision);
        let position = QueuePosition::default();
        self.record_position(claim, dir, &conn, ClaimReply { revision, read_revision, ttl, position })
    }

    /// Grants the name to a waiting claim if nothing is ahead of it any more. Otherwise, or if the outcome is unknown,
    /// lets the keeper ask for the claim.
    pub(crate) fn take_in_background(&self, id: ClaimId) {
        let client = self.weak();
        runtime::spawn(async move {
            let Some(client) = client.upgrade() else { return };
            if runtime::within(REQUEST_TIMEOUT, client.push_grant(id)).await != Some(true) {
                client.push_recheck(id);
            }
        });
    }

    /// Grants the name to a waiting claim, and notifies the keeper. False if the keeper has to ask for the claim.
    async fn push_grant(&self, id: ClaimId) -> bool {
        let sent = self.now();
        let waiting = self.claims().get(id).and_then(|entry| {
            // The hold depends on its lease, so the lease must have been confirmed recently.
            let remaining = entry.data.lease_slot.session().remaining(sent)?;
            let queued = Queued { is_behind: false, ..Queued::of(id, entry)? };
            Some((entry.name.clone(), queued, remaining.min(entry.claim_time)))
        });
        let Some((name, queued, ttl)) = waiting else { return false };
        let dir = self.dir(&name);
        let Some(lock_key) = dir.lock_key() else { return false };
        match self.take_lock_key(&dir, &lock_key, queued).await {
            Ok((conn, Attempt::Held(revision))) => self.on_taken((id, name), &conn, revision, (sent, ttl)),
            _ => false,
        }
    }

    /// Records a pushed grant, and notifies the keeper. If the claim has ended meanwhile, its release finds the lock
    /// key. False if the grant has no token: then the keeper has to ask for the claim.
    fn on_taken(
        &self,
        (id, name): (ClaimId, Name),
        conn: &Conn,
        revision: i64,
        (sent, ttl): (leasehold_core::Instant, Duration),
    ) -> bool {
        let mut claims = self.claims();
        let Some(entry) = claims.get(id).filter(|entry| matches!(entry.state, State::Waiting { .. })) else {
            return true;
        };
        let Ok(grant) = self.held(conn, revision, entry.tokens, ttl) else { return false };
        claims.hold(id, revision, false, (self.now(), sent.after(ttl)));
        drop(claims);
        self.wake_maintenance.notify_one();
        conn.watches.unwatch(crate::watches::WatchTarget::Blocker(id), self.now());
        self.mailbox.push(Notification::Granted { name, id, grant, since: Some(sent) });
        true
    }

    /// Creates the lock key for a claim in the queue, if the claim is the head of the queue and the lock key is absent.
    /// A claim that waits for an older queue key reads its position first, because a read costs the server less than a
    /// transaction that may write.
    async fn take_lock_key(
        &self,
        dir: &Dir,
        lock_key: &[u8],
        mut queued: Queued,
    ) -> Result<(Arc<Conn>, Attempt), EngineError> {
        let mut with_value = true;
        loop {
            let reads = reads(dir, lock_key, &queued, with_value);
            let txn = if queued.is_behind {
                Txn { success: reads, ..Txn::default() }
            } else {
                taking_txn(dir, lock_key, &queued, reads)
            };
            let (conn, reply) = match self.call(txn).await {
                // Nothing was created: a transaction that creates the lock key reads nothing.
                Err(Failed::Sent(status)) if is_reply_too_long(&status) && with_value => {
                    with_value = false;
                    continue;
                }
                answered => answered.map_err(Failed::classified)?,
            };
            let attempt = self.read_attempt(dir, &queued, reply)?;
            match &attempt {
                Attempt::Waits(_, QueuePosition { blocker: None, .. }) if queued.is_behind => {
                    queued.is_behind = false;
                }
                // No condition can have failed, yet the lock key was not created.
                Attempt::Waits(_, QueuePosition { blocker: None, .. }) => return Err(unreadable()),
                _ => return Ok((conn, attempt)),
            }
        }
    }

    /// Reads the reply to a request for a claim in the queue.
    fn read_attempt(
        &self,
        dir: &Dir,
        queued: &Queued,
        mut reply: TxnResponse,
    ) -> Result<Attempt, EngineError> {
        let revision = reply.revision();
        if reply.succeeded && !queued.is_behind {
            return Ok(Attempt::Held(revision));
        }
        let queue_key = reply.range(QUEUE_KEY_OP).ok_or_else(unreadable)?.kvs.pop();
        let ahead = reply.range(AHEAD_OP).ok_or_else(unreadable)?;
        let lock_key = reply.range(LOCK_KEY_OP).ok_or_else(unreadable)?.kvs.pop();
        // An earlier request, whose answer was lost, created the lock key.
        if let Some(kv) = lock_key.as_ref().filter(|kv| is_hold_of(kv, queued.id, queued.lease)) {
            return Ok(Attempt::Held(kv.create_revision));
        }
        let is_queued =
            |kv: KeyValue| kv.create_revision == queued.revision && is_claim_record(&kv.value, queued.id);
        if !queue_key.is_some_and(is_queued) {
            return Ok(Attempt::Gone);
        }
        lock_key.iter().for_each(|kv| self.note_min_hold(kv));
        let position = QueuePosition::read(dir, Mode::Exclusive, &ahead, None);
        Ok(Attempt::Waits(revision, position.with_lock_key(lock_key.as_ref())))
    }
}

impl Queued {
    /// This claim as the claim table knows it; `None` if it does not wait.
    fn of(id: ClaimId, entry: &Entry) -> Option<Self> {
        let State::Waiting { own: revision, blocker } = &entry.state else { return None };
        let waits_for_lock_key =
            |key: &Vec<u8>| entry.data.lock_key.as_ref().is_some_and(|lock_key| lock_key == key);
        Some(Self {
            id,
            key: entry.data.key.clone(),
            revision: *revision,
            record: entry.data.record.clone(),
            lease: entry.data.lease_slot.session().id,
            is_behind: matches!(blocker, Blocker::Key { key, .. } if !waits_for_lock_key(key)),
        })
    }
}

/// Whether this lock key is the hold of this claim on this lease. Other programs can move a key to another lease, or
/// to none, and keep its value: then the key does not end with the lease of the claim.
fn is_hold_of(lock_key: &KeyValue, id: ClaimId, lease: i64) -> bool {
    lock_key.lease == lease && is_claim_record(&lock_key.value, id)
}

/// The transaction that creates the lock key if the claim is the head of the queue and the lock key is absent.
fn taking_txn(dir: &Dir, lock_key: &[u8], queued: &Queued, reads: Vec<RequestOp>) -> Txn {
    let put = Put { key: lock_key.to_vec(), value: queued.record.clone(), lease: queued.lease };
    Txn {
        compare: vec![
            compare::created(&queued.key, queued.revision),
            compare::none_older(&dir.all_keys(), queued.revision),
            compare::created(lock_key, 0),
        ],
        success: vec![put.into()],
        failure: reads,
    }
}

/// The reads of the position of a claim.
fn reads(dir: &Dir, lock_key: &[u8], queued: &Queued, with_value: bool) -> Vec<RequestOp> {
    let ahead = blockers_range(dir, Mode::Exclusive).before(queued.revision);
    let lock_key = Range::key(lock_key);
    let lock_key = if with_value { lock_key } else { lock_key.keys_only() };
    vec![Range::key(&queued.key).into(), ahead.into(), lock_key.into()]
}

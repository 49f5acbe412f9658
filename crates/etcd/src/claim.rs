//! Creates a claim: one request when the name is free.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Hint, How, Mode, UNWATCHED_POLL, lock_state::MAX_WAITERS,
};

use crate::{
    claims::{self, KeyOnLease, State},
    client::{Client, Failed},
    config::Layout,
    conn::Conn,
    error::{changed_again, classify, is_database_full, is_lease_gone, is_reply_too_long, unreadable},
    keys::{self, Dir, Span},
    position::{ClaimReply, QueuePosition, blockers_range, obstacle_of},
    record::{Record, RecordState},
    runtime,
    session::Session,
    wire::{Order, Put, Range, RequestOp, Txn, TxnResponse, compare},
};

/// The most times that the request of one claim is sent. The request is sent again if the epoch of its lease was
/// raised, if the lease has ended, or if other claims came after the read on which the request relies.
pub(crate) const MAX_TRIES: u32 = 64;
/// The longest pause before a claim is sent again.
const MAX_PAUSE: Duration = Duration::from_millis(128);

/// The indexes of the reads in a transaction that created nothing: the claim's own key, the epoch key, and from
/// `FIRST_OTHER_KIND_OP` on one read for each range of keys of another kind of lock (or of another limit). The read of
/// the oldest key ahead follows. For permits, two more reads follow: all keys ahead, and the key of clients without a
/// queue.
const KEY_OP: usize = 0;
const EPOCH_OP: usize = 1;
const FIRST_OTHER_KIND_OP: usize = 2;

/// The indexes of the reads in a transaction that created the key: the keys ahead, and the key of clients without a
/// queue.
const AHEAD_OP: usize = 1;
const BARE_KEY_OP: usize = 2;

/// What to do with a claim whose key was not created.
enum NextStep {
    Answer(Answer),
    /// Send the claim again. For a try for permits: at the revision `free_at` enough permits were free.
    Again {
        free_at: Option<i64>,
    },
}

/// What a request reads of the oldest key ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstBlocker {
    /// With its value: a minimum hold says when it ends.
    WithValue,
    /// Without its value: another program wrote a value that is longer than the bound of a reply.
    KeyOnly,
}

impl Client {
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        self.check_claim(claim)?;
        if self.in_flight.is_released(claim.id, self.now()) {
            return Ok(Answer::Gone);
        }
        let state = self.claims().get(claim.id).map(|entry| entry.state.clone());
        match state {
            None if how == How::Ask => Ok(Answer::Gone),
            Some(State::Gone) => Ok(Answer::Gone),
            None | Some(State::Made | State::Lapsed) => self.create_key(claim).await,
            Some(State::Waiting { own: revision, .. } | State::Held { own: revision, .. }) => {
                self.recheck(claim, revision).await
            }
            Some(State::Ending { .. }) => Ok(Answer::Waiting(Hint::ask_in(UNWATCHED_POLL))),
        }
    }

    /// An error if the claim can never be granted.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), EngineError> {
        keys::check_mode(claim.mode, self.layout())?;
        if self.layout() == Layout::Key { keys::check_name(&self.dir(&claim.name)) } else { Ok(()) }
    }

    /// Creates the key of the claim and returns the answer for its position.
    async fn create_key(&self, claim: &Claim) -> Result<Answer, EngineError> {
        let (mut first_blocker, mut free_at) = (FirstBlocker::WithValue, None);
        // A claim that may queue first expects a free name: the transaction for that is smaller.
        let mut expects_free =
            claim.may_queue && claim.mode.limit().is_none() && !self.contended_names.has(&claim.name);
        for tries in 0..MAX_TRIES {
            let (session, key) = self.register(claim).await?;
            let now = self.now();
            if self.in_flight.is_released(claim.id, now) {
                return Ok(Answer::Gone);
            }
            let Some(ttl) = session.remaining(now).map(|remaining| remaining.min(claim.ttl)) else {
                continue;
            };
            let (dir, epoch) = (self.dir(&claim.name), session.epoch());
            let request = creation_txn(
                &dir,
                claim,
                (&session, epoch),
                key,
                self.prefix(),
                (ttl, first_blocker, free_at),
                expects_free,
            );
            if let (true, Some(entry)) = (dir.has_lock_key(), self.claims().get(claim.id)) {
                entry.data.record = record_text(claim, ttl);
                // An earlier queue key of a lapsed claim was deleted.
                entry.data.queue_revision = None;
            }
            let in_flight = self.in_flight.start(claim.id, self.next_request_number(), now);
            let (conn, reply) = match self.call(request).await {
                Ok(answered) => answered,
                Err(Failed::Sent(status)) if is_lease_gone(&status) => {
                    in_flight.complete();
                    session.end();
                    self.wake_maintenance.notify_one();
                    continue;
                }
                // A reply that is too long shows that the key of the claim was not created: a transaction that creates
                // the key reads no values, so its reply is short.
                Err(Failed::Sent(status))
                    if is_reply_too_long(&status) && first_blocker == FirstBlocker::WithValue =>
                {
                    in_flight.complete();
                    first_blocker = FirstBlocker::KeyOnly;
                    continue;
                }
                Err(Failed::Sent(status)) if is_database_full(&status) => {
                    in_flight.complete();
                    self.withdraw(claim).await?;
                    return Err(classify(&status));
                }
                Err(failed) => {
                    let error = failed.classified();
                    if error.fault != Fault::Unknown {
                        in_flight.complete();
                        self.forget_if_settled(claim);
                    }
                    return Err(error);
                }
            };
            in_flight.complete();
            if reply.succeeded {
                let proves_free = proves_free(claim, expects_free);
                return self.on_key_created(claim, &dir, &conn, reply, ttl, proves_free).await;
            }
            if expects_free {
                self.contended_names.add(&claim.name);
                expects_free = false;
                continue;
            }
            match self.on_key_not_created(claim, &dir, &session, epoch, reply).await? {
                NextStep::Answer(answer) => return Ok(answer),
                // Other claims arrived after the revision at which enough permits were free.
                NextStep::Again { free_at: newer } if free_at.is_some() => {
                    free_at = newer;
                    runtime::sleep(pause(claim.id, tries)).await;
                }
                NextStep::Again { free_at: newer } => free_at = newer,
            }
        }
        self.forget_if_settled(claim);
        Err(changed_again())
    }

    /// Adds the claim to the claim table before its first request leaves, so that every outcome can be undone.
    pub(crate) async fn register(&self, claim: &Claim) -> Result<(Arc<Session>, Vec<u8>), EngineError> {
        let now = self.now();
        let registered = self.claims().get(claim.id).map(|entry| {
            entry.asked_again(now);
            (Arc::clone(entry.data.lease_slot.session()), entry.data.key.clone())
        });
        // An earlier request of the claim may still arrive while its lease exists, so the claim stays on that lease.
        if let Some(registered) = registered.filter(|(session, _)| !session.has_ended()) {
            return match self.wait_until_confirmed(&registered.0).await {
                Err(_) if registered.0.has_ended() => Ok(registered),
                confirmed => confirmed.map(|()| registered),
            };
        }
        let lease_slot = self.take_lease_slot(claim.ttl).await?;
        let session = Arc::clone(lease_slot.session());
        // A claim whose lease ended starts from the beginning: none of its keys can exist.
        let now = self.now();
        let mut claims = self.claims();
        // Removing the old entry frees its key for reuse.
        drop(claims.remove(claim.id));
        let dir = self.dir(&claim.name);
        let key_on_lease = KeyOnLease::new(&self.keys_in_use, &dir, claim.mode, lease_slot);
        let key = key_on_lease.key.clone();
        claims.enter(claim, key_on_lease, now);
        Ok((session, key))
    }

    /// Forgets a claim whose last request created nothing, unless an earlier request can still arrive. In that case the
    /// claim stays in the claim table, because its release has to raise the epoch of its lease.
    pub(crate) fn forget_if_settled(&self, claim: &Claim) {
        if !self.in_flight.is_unsettled(claim.id, self.now()) {
            self.claims().remove(claim.id);
        }
    }

    /// Records that the key of a claim exists, before the client asks for the position of the claim.
    pub(crate) fn note_queued(&self, claim: &Claim, revision: i64) {
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            claims::queued(entry, revision, now);
        }
    }

    /// Reads the reply of a transaction that created the key, and returns the answer.
    async fn on_key_created(
        &self,
        claim: &Claim,
        dir: &Dir,
        conn: &Conn,
        mut reply: TxnResponse,
        ttl: Duration,
        proves_free: bool,
    ) -> Result<Answer, EngineError> {
        let revision = reply.revision();
        if dir.has_lock_key() {
            self.note_queue_revision(claim.id, revision);
        }
        if proves_free {
            let position = QueuePosition::default();
            let claim_reply = ClaimReply { revision, read_revision: revision, ttl, position };
            return self.record_position(claim, dir, conn, claim_reply);
        }
        let ahead = reply.range(AHEAD_OP).ok_or_else(unreadable)?;
        let mut foreign = reply.range(BARE_KEY_OP).ok_or_else(unreadable)?;
        let may_be_min_holds = if dir.has_lock_key() { &foreign } else { &ahead };
        self.read_new_min_holds(may_be_min_holds, dir, (claim.mode, revision));
        let foreign = foreign.kvs.pop();
        let position = QueuePosition::read(dir, claim.mode, &ahead, Some(revision));
        let is_full = position.ahead.is_some_and(|ahead| ahead as usize > MAX_WAITERS);
        let position = if dir.has_lock_key() {
            position.with_lock_key(foreign.as_ref())
        } else {
            position.with_foreign(foreign)
        };
        self.contended_names.set(&claim.name, position.blocker.is_some());
        if is_full {
            self.withdraw(claim).await?;
            return Err(EngineError::new(Fault::Refused, "the queue is full: too many claims wait already"));
        }
        if dir.has_lock_key() && position.blocker.is_none() {
            self.note_queued(claim, revision);
            // The head of the queue creates the lock key.
            return self.recheck(claim, revision).await;
        }
        self.record_position(
            claim,
            dir,
            conn,
            ClaimReply { revision, read_revision: revision, ttl, position },
        )
    }

    /// Reads the reply of a transaction that did not create the key, and decides what to do next.
    async fn on_key_not_created(
        &self,
        claim: &Claim,
        dir: &Dir,
        session: &Session,
        epoch: i64,
        mut reply: TxnResponse,
    ) -> Result<NextStep, EngineError> {
        const AGAIN: NextStep = NextStep::Again { free_at: None };
        let own_key = reply.range(KEY_OP).ok_or_else(unreadable)?.kvs.pop();
        if let Some(own_key) = own_key {
            let record = Record::read(&own_key.value);
            // With `layout=election` the key of a claim has no record, and this client gives no two claims one key.
            let is_own = record.map_or(dir.is_election(), |record| record.id == claim.id);
            if !is_own {
                if let Some(entry) = self.claims().get(claim.id) {
                    entry.data.take_another_key(dir, claim.mode);
                }
                return Ok(AGAIN);
            }
            let revision = own_key.create_revision;
            if dir.has_lock_key() {
                self.note_queue_revision(claim.id, revision);
            }
            self.note_queued(claim, revision);
            return self.recheck(claim, revision).await.map(NextStep::Answer);
        }
        let stored_epoch =
            reply.range(EPOCH_OP).ok_or_else(unreadable)?.kvs.pop().map_or(0, |kv| kv.mod_revision);
        if stored_epoch != epoch {
            session.set_epoch(stored_epoch);
            return Ok(AGAIN);
        }
        let other_kinds = dir.other_kinds(claim.mode).len();
        for step in FIRST_OTHER_KIND_OP..FIRST_OTHER_KIND_OP + other_kinds {
            if let Some(other) = reply.range(step).ok_or_else(unreadable)?.kvs.pop() {
                self.forget_if_settled(claim);
                return Err(kind_mismatch(claim, dir.mode(&other.key)));
            }
        }
        if claim.may_queue {
            // No condition can have failed, yet the key was not created.
            return Err(unreadable());
        }
        let mut first_ahead =
            reply.range(FIRST_OTHER_KIND_OP + other_kinds).ok_or_else(unreadable)?.kvs.pop();
        let mut obstacle = None;
        if dir.has_lock_key() {
            // A queue key ends with its lease, and is no minimum hold.
            first_ahead = reply.range(FIRST_OTHER_KIND_OP + 1).ok_or_else(unreadable)?.kvs.pop();
            obstacle = first_ahead.as_ref().and_then(obstacle_of);
        }
        if claim.mode.limit().is_some() {
            let all_ahead = reply.range(FIRST_OTHER_KIND_OP + other_kinds + 1).ok_or_else(unreadable)?;
            let position = QueuePosition::read(dir, claim.mode, &all_ahead, None);
            let foreign =
                reply.range(FIRST_OTHER_KIND_OP + other_kinds + 2).ok_or_else(unreadable)?.kvs.pop();
            if position.with_foreign(foreign).blocker.is_none() {
                return Ok(NextStep::Again { free_at: Some(reply.revision()) });
            }
        }
        self.forget_if_settled(claim);
        self.end_lease_used_once(session).await;
        first_ahead.iter().for_each(|kv| self.note_min_hold(kv));
        let min_hold = first_ahead
            .and_then(|kv| Record::read(&kv.value))
            .filter(|record| record.state == RecordState::MinHold);
        Ok(NextStep::Answer(Answer::Taken(Hint {
            ask_in: min_hold.map(|record| record.hold_time),
            obstacle,
            ..Hint::default()
        })))
    }

    /// Deletes the key of a claim that is not allowed to wait in the queue. Returns an error if the deletion fails:
    /// then the result of the claim is unknown.
    async fn withdraw(&self, claim: &Claim) -> Result<(), EngineError> {
        let registered = self.claims().get(claim.id).map(|entry| {
            (entry.data.key.clone(), entry.state.own().copied(), entry.data.queue_and_lock_key())
        });
        match registered {
            Some((.., Some(keys))) => drop(self.delete_queue_and_lock_key(claim.id, &keys, None).await?),
            Some((key, revision, None)) => drop(self.delete(claim.id, &key, revision, None).await?),
            None => {}
        }
        self.forget_if_settled(claim);
        Ok(())
    }
}

/// The transaction that creates the key if it does not exist, the epoch is unchanged and no other kind of lock is in
/// the directory. A try also requires that nothing is ahead of it: no key of a blocking claim, and no bare key, by
/// which a client without a queue holds. No condition can count permits. So a try for permits that finds other keys
/// creates nothing and reads the directory. If enough permits are free, the try is sent again on condition that no key
/// was added after this read. In this way the key of a try refuses another try only when it is the key of a hold (I13).
///
/// `expects_free`: creates the key only if nothing is ahead of the claim, and reads nothing. Such a transaction costs
/// the server and the log less; if it creates nothing, the claim is sent again without `expects_free`.
fn creation_txn(
    dir: &Dir,
    claim: &Claim,
    (session, epoch): (&Session, i64),
    key: Vec<u8>,
    prefix: &str,
    (ttl, first_blocker, free_at): (Duration, FirstBlocker, Option<i64>),
    expects_free: bool,
) -> Txn {
    let epoch_key = keys::epoch_key(prefix, session.id);
    let other_kind_spans = dir.other_kinds(claim.mode);
    let mut conditions = vec![compare::changed(&epoch_key, epoch)];
    let blockers = dir.blockers(claim.mode);
    let bare_key = dir.bare_key();
    let proves_free = proves_free(claim, expects_free);
    // If no key may be in the directory, the key of the claim and those of another kind need no condition of their own.
    if !(proves_free && claim.mode == Mode::Exclusive) {
        conditions.push(compare::created(&key, 0));
        conditions.extend(other_kind_spans.iter().map(compare::empty));
    }
    if expects_free || !claim.may_queue {
        conditions.push(compare::created(&bare_key, 0));
        conditions.push(match free_at {
            None => compare::empty(&blockers),
            Some(revision) => compare::none_newer(&blockers, revision),
        });
    }
    let failure = if expects_free {
        Vec::new()
    } else {
        reads_on_failure(dir, claim.mode, (&key, &epoch_key), &other_kind_spans, first_blocker)
    };
    // With `layout=election` the value of a candidate is empty until it leads and publishes one.
    let value = if dir.is_election() { Vec::new() } else { record_text(claim, ttl) };
    let put = |key| Put { key, value: value.clone(), lease: session.id };
    let mut success = vec![put(key).into()];
    if !proves_free {
        success.push(blockers_range(dir, claim.mode).into());
        success.push(Range::key(&bare_key).keys_only().into());
    } else if let Some(lock_key) = dir.lock_key() {
        success.push(put(lock_key).into());
    }
    Txn { compare: conditions, success, failure }
}

/// The value of the keys of a claim.
pub(crate) fn record_text(claim: &Claim, hold_time: Duration) -> Vec<u8> {
    let owner = claim.owner.to_string();
    Record { state: RecordState::Claim, id: claim.id, hold_time, owner }.text()
}

/// Whether the conditions of this claim prove that nothing is ahead of it, so that the claim holds as soon as its key
/// is created.
fn proves_free(claim: &Claim, expects_free: bool) -> bool {
    expects_free || (!claim.may_queue && claim.mode.limit().is_none())
}

/// The reads of a transaction that did not create the key: why it did not.
fn reads_on_failure(
    dir: &Dir,
    mode: Mode,
    (key, epoch_key): (&[u8], &[u8]),
    other_kind_spans: &[Span],
    first_blocker: FirstBlocker,
) -> Vec<RequestOp> {
    let mut reads = vec![Range::key(key).into(), Range::key(epoch_key).keys_only().into()];
    reads.extend(other_kind_spans.iter().map(|span| Range::between(span).limit(1).keys_only().into()));
    let with_value = |range: Range| {
        if first_blocker == FirstBlocker::WithValue { range } else { range.keys_only() }
    };
    let first_ahead = Range::between(&dir.blockers(mode)).by_age(Order::Ascend).limit(1);
    reads.push(with_value(first_ahead).into());
    reads.extend(dir.lock_key().map(|lock_key| with_value(Range::key(&lock_key)).into()));
    if mode.limit().is_some() {
        reads.push(blockers_range(dir, mode).into());
        reads.push(Range::key(&dir.bare_key()).keys_only().into());
    }
    reads
}

/// The random pause before a try for permits is sent again. Of several tries that are sent at the same time only one
/// succeeds. So the longest pause doubles each time a try is sent again (`tries` counts this), and the tries spread
/// out.
pub(crate) fn pause(id: ClaimId, tries: u32) -> Duration {
    let longest = Duration::from_millis(1).saturating_mul(1 << tries.min(16)).min(MAX_PAUSE);
    // Ids are random, so their bytes are too.
    longest * u32::from(id.0[tries as usize % id.0.len()]) / u32::from(u8::MAX)
}

/// The error if the name is in use now in another mode.
pub(crate) fn kind_mismatch(claim: &Claim, mode_in_use: Mode) -> EngineError {
    let kind_in_use = match mode_in_use {
        Mode::Permits { limit, .. } => format!("a semaphore of {limit}"),
        _ => "a mutex or read-write lock".to_owned(),
    };
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use now as {kind_in_use} and cannot be claimed as {}: one name is one kind of lock with one limit",
            claim.mode
        ),
    )
}

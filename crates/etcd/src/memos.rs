//! Memos: a small record beside a name, under a key of its own.
//!
//! One transaction writes a memo. Its conditions are that the claim holds the name, and that the key of the memo is as
//! the client knows it; it also ends the hold if asked to. If a condition fails, the transaction reads both keys, and
//! the client decides: the memo is sent again for another state of the key, or not at all.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Fault, Followed, HoldAfter, Memo, MemoHead, MemoKind, MemoVerdict,
    MemoWrite, Memos, Name, Written, foreign_memo_error, judge_memo,
};
use tonic::Status;

use crate::{
    claims::State,
    client::{Client, Failed},
    config::Layout,
    conn::Conn,
    engine::REQUEST_LIFE,
    error::{classify, is_database_full, is_lease_gone, is_reply_too_long, unreadable},
    keys::{self, Dir, check_name},
    known_memos::Stored,
    memo_holder::Holder,
    memo_leases::LeaseOfMemo,
    memo_record::MemoRecord,
    recheck::is_claim_record,
    record::{Record, claim_record_bounds},
    runtime,
    session::Session,
    wire::{DeleteRange, KeyValue, Order, Put, Range, RequestOp, Txn, TxnResponse, compare},
};

/// The indexes of the reads: the key of the memo, and the key of the hold.
const MEMO_OP: usize = 0;
const HOLD_OP: usize = 1;
/// The hold under which a memo is written, as the claim table has it.
struct OwnHold {
    /// The key by which the claim holds.
    key: Vec<u8>,
    /// The revision at which it was created.
    revision: i64,
    /// With `layout=key`: the queue key, which ends with the hold.
    queue_key: Option<Vec<u8>>,
    session: Arc<Session>,
    /// A later write of the claim is stored, or was.
    is_late: bool,
    /// With `layout=election`: the write is to publish the bytes of the memo in the key of the hold.
    publishes: bool,
    /// With `layout=election`: the revision at which the claim last published a value; `None`: never.
    published: Option<i64>,
}

/// The next request of a write.
struct Attempt {
    /// What the write replaces. `None`: the memo is not written, because a later one is stored.
    replaces: Option<Stored>,
    /// The lease whose epoch the request raises: see [`Client::delete`].
    raise_epoch_of: Option<i64>,
    /// Read the hold with its value, which is unreadable if another program wrote a very long one.
    with_hold_value: bool,
    /// A lease of this request was gone before.
    lost_lease: bool,
    /// With `layout=election`: the revision at which the key of the hold was last changed by this client.
    hold_changed: i64,
}

/// What follows from the keys that a failed request read.
enum Next {
    /// An earlier request of the same write was applied, and stored this.
    Applied(Stored),
    Overtaken,
    /// The request is to be sent again with these fields of [`Attempt`].
    Again {
        replaces: Option<Stored>,
        hold_changed: i64,
    },
}

impl Client {
    async fn read_memo(&self, name: &Name) -> Result<Option<Memo>, EngineError> {
        let dir = self.dir(name);
        check_name(&dir)?;
        let key = keys::memo_key(self.prefix(), self.layout(), name);
        let (conn, mut reply) = self.read_memo_and_hold(&dir, &key).await?;
        let read_revision = reply.revision();
        let kv = reply.range(MEMO_OP).ok_or_else(unreadable)?.kvs.pop();
        let hold = reply.range(HOLD_OP).ok_or_else(unreadable)?.kvs.pop();
        let record = kv.as_ref().map(|kv| read_record(kv, &key)).transpose()?;
        let state = kv.as_ref().zip(record.as_ref());
        self.known_memos.note(name, state.map(|(kv, record)| (Stored::of(kv, record), record.kind.clone())));
        let holder = Holder::of(&dir, hold.as_ref(), state, self.token_blocks());
        let span = match &hold {
            // The next candidate of any program is the leader.
            None if dir.is_election() => Some(dir.all_keys()),
            Some(kv) if dir.is_election() || holder == Holder::Writer => Some((kv.key.clone(), Vec::new())),
            _ => None,
        };
        self.watch_memo_hold(&conn, name, (span, read_revision));
        if let Holder::Foreign(leader) = holder {
            return self.memo_of_foreign_leader(&conn, leader).map(Some);
        }
        let Some((kv, record)) = kv.zip(record) else { return Ok(None) };
        let mut left = record.left(runtime::time_of_day());
        if left.is_zero() {
            left = self.memo_time_left(&kv).await?;
        }
        if left.is_zero() {
            return Ok(None);
        }
        let MemoRecord { kind, version, token, print, bytes, .. } = record;
        Ok(Some(Memo { kind, bytes, print, version, token, left, is_held: holder == Holder::Writer }))
    }

    /// Reads the key of the memo, and the key of the only claim that can be its writer and hold still.
    async fn read_memo_and_hold(
        &self,
        dir: &Dir,
        key: &[u8],
    ) -> Result<(Arc<Conn>, TxnResponse), EngineError> {
        let holder = match dir.lock_key() {
            Some(lock_key) => Range::key(&lock_key),
            None => Range::between(&dir.all_keys()).by_age(Order::Ascend).limit(1),
        };
        let reads =
            |holder: Range| Txn { success: vec![Range::key(key).into(), holder.into()], ..Txn::default() };
        match self.call(reads(holder.clone())).await {
            Err(Failed::Sent(status)) if is_reply_too_long(&status) => {}
            answered => return answered.map_err(Failed::classified),
        }
        // A value that is too long is not ours.
        match self.call(reads(holder.keys_only())).await {
            Err(Failed::Sent(status)) if is_reply_too_long(&status) => Err(foreign(key)),
            answered => answered.map_err(Failed::classified),
        }
    }

    /// How long the server keeps this memo; zero if its time is over, although the server has not deleted it yet.
    async fn memo_time_left(&self, kv: &KeyValue) -> Result<Duration, EngineError> {
        let time_to_live = self.time_to_live(kv.lease).await?;
        let seconds = time_to_live.map_or(0, |time_to_live| time_to_live.ttl.try_into().unwrap_or(0));
        Ok(Duration::from_secs(seconds))
    }

    async fn write_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        let written = self.store_memo(write).await;
        let is_refused = match &written {
            Ok(written) => *written == Written::Overtaken,
            // Core writes again.
            Err(error) => !matches!(error.fault, Fault::Retry | Fault::Unknown),
        };
        if is_refused {
            self.end_unused_memo_leases(write.version.id).await;
        }
        written
    }

    async fn store_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        check_name(&self.dir(&write.name))?;
        let Some(hold) = self.own_hold(write) else { return Ok(Written::Overtaken) };
        if hold.publishes && Record::read(write.memo.bytes()).is_some() {
            return Err(EngineError::new(
                Fault::Misconfigured,
                "this value of a leader has the form of a record of leasehold, with which it could be confused",
            ));
        }
        let key = keys::memo_key(self.prefix(), self.layout(), &write.name);
        let mut attempt = Attempt {
            replaces: Some(self.known_memos.stored(&write.name, write.memo.kind())).filter(|_| !hold.is_late),
            raise_epoch_of: self.before_ending(write, &hold),
            with_hold_value: true,
            lost_lease: false,
            hold_changed: hold.published.unwrap_or(hold.revision),
        };
        loop {
            let lease = match attempt.replaces {
                Some(_) => Some(self.lease_for_memo(write.memo.keep(), write.version.id).await?),
                None => None,
            };
            let txn = self.memo_txn(write, &hold, (&key, lease.as_ref()), &attempt);
            let answer = self.call(txn).await;
            if let Some(lease) = lease.as_ref().filter(|_| changed_nothing(&answer)) {
                self.memo_leases.give_back(lease.id);
            }
            let stored = match answer {
                Ok((_, reply)) if reply.succeeded => Stored {
                    revision: reply.revision(),
                    own_lease: lease.as_ref().and_then(LeaseOfMemo::of_one_hold),
                },
                Ok((_, reply)) => match self.after_failure(write, &hold, &key, reply).await? {
                    Next::Applied(stored) => stored,
                    Next::Overtaken => return Ok(Written::Overtaken),
                    Next::Again { replaces, hold_changed } => {
                        (attempt.replaces, attempt.hold_changed) = (replaces, hold_changed);
                        continue;
                    }
                },
                Err(Failed::Sent(status)) if is_database_full(&status) => {
                    self.after_full_database(write, &key, &status).await?
                }
                Err(Failed::Sent(status)) => {
                    self.retry_memo(&mut attempt, &hold, lease.as_ref(), (&key, &status)).await?;
                    continue;
                }
                Err(failed) => return Err(failed.classified()),
            };
            self.note_written(write, &hold, &attempt, stored).await;
            return Ok(Written::Done);
        }
    }

    /// The hold of a write, if the claim table has it with this token.
    fn own_hold(&self, write: &MemoWrite) -> Option<OwnHold> {
        let mut claims = self.claims();
        let entry = claims.get(write.version.id)?;
        let State::Held { own: revision, .. } = entry.state else { return None };
        let is_same =
            entry.name == write.name && self.token_blocks().first(revision) == Some(write.hold_token.number);
        is_same.then(|| OwnHold {
            key: entry.data.hold_key().to_vec(),
            revision,
            queue_key: entry.data.queue_and_lock_key().map(|keys| keys.queue_key),
            session: Arc::clone(entry.data.lease_slot.session()),
            is_late: entry.data.newest_memo > write.version.number,
            publishes: self.layout() == Layout::Election
                && *write.memo.kind() == MemoKind::ELECTION
                && write.after == HoldAfter::Keep,
            published: entry.data.published,
        })
    }

    /// Before a request that ends the hold: as before a release. Returns the lease whose epoch the request has to
    /// raise, because an earlier request of the claim may still arrive. If the request does not end the hold, core
    /// sends a release.
    fn before_ending(&self, write: &MemoWrite, hold: &OwnHold) -> Option<i64> {
        if write.after == HoldAfter::Keep {
            return None;
        }
        let (id, now) = (write.version.id, self.now());
        let may_arrive_late =
            self.in_flight.release(id, self.next_request_number(), now, now.after(REQUEST_LIFE));
        self.unwatch(id);
        Some(hold.session.id).filter(|_| may_arrive_late && !hold.session.has_ended())
    }

    /// The transaction of a write.
    fn memo_txn(
        &self,
        write: &MemoWrite,
        hold: &OwnHold,
        (key, lease): (&[u8], Option<&LeaseOfMemo>),
        attempt: &Attempt,
    ) -> Txn {
        let (from, to) = claim_record_bounds(write.version.id);
        let mut conditions = vec![compare::created(&hold.key, hold.revision)];
        if self.layout() == Layout::Election {
            conditions.push(compare::changed(&hold.key, attempt.hold_changed));
        } else {
            conditions.push(compare::value_after(&hold.key, &from));
            conditions.push(compare::value_before(&hold.key, &to));
        }
        let mut success: Vec<RequestOp> = Vec::new();
        if let (Some(replaced), Some(lease)) = (attempt.replaces, lease) {
            conditions.push(compare::changed(key, replaced.revision));
            let record = MemoRecord::of(write, runtime::time_of_day(), lease.life);
            success.push(Put { key: key.to_vec(), value: record.text(), lease: lease.id }.into());
            if hold.publishes {
                let (key, value) = (hold.key.clone(), write.memo.bytes().to_vec());
                success.push(Put { key, value, lease: hold.session.id }.into());
            }
        }
        if write.after == HoldAfter::Release {
            let ended = [Some(&hold.key), hold.queue_key.as_ref()];
            let deletion = |key: &Vec<u8>| DeleteRange { key: key.clone(), ..DeleteRange::default() };
            success.extend(ended.into_iter().flatten().map(|key| RequestOp::from(deletion(key))));
        }
        if let Some(lease) = attempt.raise_epoch_of {
            let key = keys::epoch_key(self.prefix(), lease);
            success.push(Put { key, value: Vec::new(), lease }.into());
        }
        let hold_key = Range::key(&hold.key);
        let hold_key = if attempt.with_hold_value { hold_key } else { hold_key.keys_only() };
        Txn { compare: conditions, success, failure: vec![Range::key(key).into(), hold_key.into()] }
    }

    /// Decides by the keys that a failed request read. Nothing was changed.
    async fn after_failure(
        &self,
        write: &MemoWrite,
        hold: &OwnHold,
        key: &[u8],
        mut reply: TxnResponse,
    ) -> Result<Next, EngineError> {
        let kv = reply.range(MEMO_OP).ok_or_else(unreadable)?.kvs.pop();
        let hold_kv = reply.range(HOLD_OP).ok_or_else(unreadable)?.kvs.pop();
        let hold_changed = hold_kv.as_ref().map_or(0, |kv| kv.mod_revision);
        let is_unbroken = |hold_kv: &KeyValue| match self.layout() {
            // The claim published the value, by an earlier write whose answer was lost, or none.
            Layout::Election => {
                let is_of_memo = kv.as_ref().is_some_and(|kv| kv.mod_revision == hold_changed);
                is_of_memo || hold_changed == hold.published.unwrap_or(hold.revision)
            }
            _ => is_claim_record(&hold_kv.value, write.version.id),
        };
        let is_held = hold_kv.is_some_and(|kv| kv.create_revision == hold.revision && is_unbroken(&kv));
        let again = |replaces| Next::Again { replaces, hold_changed };
        let record = match kv.as_ref().map(|kv| read_record(kv, key)).transpose() {
            Err(_) if !is_held => return Ok(Next::Overtaken),
            record => record?,
        };
        let Some((kv, record)) = kv.zip(record) else {
            return Ok(if is_held { again(Some(Stored::NOTHING)) } else { Next::Overtaken });
        };
        let stored = Stored::of(&kv, &record);
        if write.after == HoldAfter::Release && record.version == write.version {
            return Ok(Next::Applied(stored));
        }
        let head = |has_ended| MemoHead { kind: &record.kind, version: record.version, has_ended };
        let mut verdict = judge_memo(write, is_held, Some(head(false)));
        if matches!(verdict, MemoVerdict::Refuse(_)) && self.memo_time_left(&kv).await?.is_zero() {
            verdict = judge_memo(write, is_held, Some(head(true)));
        }
        match verdict {
            MemoVerdict::Store => Ok(again(Some(stored))),
            MemoVerdict::LeaveLater => Ok(again(None)),
            MemoVerdict::Overtaken => Ok(Next::Overtaken),
            MemoVerdict::Refuse(error) => Err(error),
        }
    }

    /// Changes the next request after an error of the server that another request may not have. Nothing was applied.
    async fn retry_memo(
        &self,
        attempt: &mut Attempt,
        hold: &OwnHold,
        lease: Option<&LeaseOfMemo>,
        (key, status): (&[u8], &Status),
    ) -> Result<(), EngineError> {
        if is_lease_gone(status) {
            if let Some(lease) = lease {
                self.memo_leases.forget(lease.id);
            }
            let lost_before = std::mem::replace(&mut attempt.lost_lease, true);
            if lease.is_some() && !lost_before {
                return Ok(());
            }
            // The lease of the epoch or another one for memos. As long as the former lives, a late request on it can
            // create a key, and the epoch has to be raised.
            let has_ended = lease.is_none() || self.time_to_live(hold.session.id).await?.is_none();
            return match attempt.raise_epoch_of.take_if(|_| has_ended) {
                Some(_) => Ok(()),
                None => Err(classify(status)),
            };
        }
        if !is_reply_too_long(status) {
            return Err(classify(status));
        }
        // A value that is too long is not ours.
        if std::mem::replace(&mut attempt.with_hold_value, false) { Ok(()) } else { Err(foreign(key)) }
    }

    /// A server whose database became full with this request has applied it, and answers with the same error as a
    /// server that refused it. Returns what the write stored if it was applied.
    async fn after_full_database(
        &self,
        write: &MemoWrite,
        key: &[u8],
        status: &Status,
    ) -> Result<Stored, EngineError> {
        let full = classify(status);
        let unknown = |error: EngineError| EngineError::new(Fault::Unknown, error.message);
        let (_, reply) = self.ask(Range::key(key)).await.map_err(unknown)?;
        let if_written = |kv: &KeyValue| {
            let record = MemoRecord::read(&kv.value).filter(|record| record.version == write.version)?;
            Some(Stored::of(kv, &record))
        };
        reply.kvs.iter().find_map(if_written).ok_or(full)
    }

    /// Records that a write was applied, and revokes the lease of the memo that it has replaced, if nothing else is on
    /// that lease. Its hold has ended or is the present one, so no request can write on it any more.
    async fn note_written(&self, write: &MemoWrite, hold: &OwnHold, attempt: &Attempt, stored: Stored) {
        let id: ClaimId = write.version.id;
        let former_lease = attempt.replaces.and_then(|replaced| replaced.own_lease);
        let former_lease = former_lease.filter(|former| stored.own_lease != Some(*former));
        if attempt.replaces.is_some() {
            self.known_memos.note(&write.name, Some((stored, write.memo.kind().clone())));
        }
        match write.after {
            HoldAfter::Keep => {
                if let Some(entry) = self.claims().get(id) {
                    entry.data.newest_memo = entry.data.newest_memo.max(write.version.number);
                    if hold.publishes && attempt.replaces.is_some() {
                        entry.data.published = Some(stored.revision);
                    }
                }
                if let (Some(lease), Some(client)) = (former_lease, self.weak().upgrade()) {
                    runtime::spawn(async move { client.revoke_memo_lease(lease).await });
                }
            }
            HoldAfter::Release => {
                if attempt.raise_epoch_of.is_some() {
                    hold.session.raise_epoch_to(stored.revision);
                }
                drop(self.claims().remove(id));
                self.in_flight.settle(id);
                if let Some(lease) = former_lease {
                    self.revoke_memo_lease(lease).await;
                }
                self.end_unused_memo_leases(id).await;
                self.end_lease_used_once(&hold.session).await;
            }
        }
    }
}

/// Whether the request certainly changed nothing. A server whose database becomes full by a request has applied it.
fn changed_nothing(answer: &Result<(Arc<Conn>, TxnResponse), Failed>) -> bool {
    match answer {
        Ok((_, reply)) => !reply.succeeded,
        Err(Failed::NotSent(_)) => true,
        Err(Failed::Sent(status)) => !is_database_full(status) && classify(status).fault != Fault::Unknown,
    }
}

/// Reads the key of a memo.
fn read_record(kv: &KeyValue, key: &[u8]) -> Result<MemoRecord, EngineError> {
    // leasehold writes no memo without a lease.
    MemoRecord::read(&kv.value).filter(|_| kv.lease != 0).ok_or_else(|| foreign(key))
}

pub(crate) fn foreign(key: &[u8]) -> EngineError {
    foreign_memo_error(&String::from_utf8_lossy(key))
}

impl Memos for Client {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(self.read_memo(name))
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(self.write_memo(write))
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        Some(self.follow_memo(name))
    }
}

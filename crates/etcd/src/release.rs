//! Ends claims.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Fault, Release, Released};

use crate::{
    claims::{Entry, QueueAndLockKey, State},
    client::{Client, Failed},
    config::Layout,
    engine::REQUEST_LIFE,
    error::{classify, is_database_full, is_lease_gone, unreadable},
    keys,
    record::{BEFORE_BROKEN, BEFORE_MIN_HOLD, Record, RecordState, claim_record_bounds},
    runtime,
    session::Session,
    wire::{Compare, DeleteRange, KeyValue, Put, Range, Revoke, Txn, compare},
};

/// How long a client waits for the revocation of a lease that is no longer needed. What the lease was for has already
/// ended when this wait begins.
pub(crate) const REVOKE_LIMIT: Duration = Duration::from_secs(1);
/// The index of the step that deletes the key, or that reads the key if the conditions of the deletion do not hold.
const KEY_OP: usize = 0;

impl Client {
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        join_all(releases.iter().map(|release| self.release_with_leases(release))).await
    }

    /// Ends a claim, and then the leases that were made for memos of its hold and have none.
    async fn release_with_leases(&self, release: &Release) -> Released {
        let released = self.release_one(release).await;
        self.end_unused_memo_leases(release.id).await;
        released
    }

    async fn release_one(&self, release: &Release) -> Released {
        let now = self.now();
        // Requests may overtake each other, so a request of the claim that is in flight may arrive after the release.
        let may_arrive_late =
            self.in_flight.release(release.id, self.next_request_number(), now, now.after(REQUEST_LIFE));
        let registered = self.claims().get(release.id).map(|entry| {
            let session = Arc::clone(entry.data.lease_slot.session());
            let held = if let State::Held { own, .. } = entry.state { Some(own) } else { None };
            let own_keys = OwnKeys {
                key: entry.data.key.clone(),
                revision: entry.state.own().copied(),
                with_lock_key: entry.data.queue_and_lock_key().map(|keys| (keys, held)),
            };
            (own_keys, session)
        });
        // A claim that is not in the table never sent a request.
        let Some((own_keys, session)) = registered else { return Released::NotThere };
        self.unwatch(release.id);
        let raise_epoch_of = Some(session.id).filter(|_| may_arrive_late && !session.has_ended());
        match self.end_claim(release, &own_keys, raise_epoch_of).await {
            Ok(old_kv) => {
                self.claims().remove(release.id);
                self.in_flight.settle(release.id);
                self.end_lease_used_once(&session).await;
                let ended_own_hold = old_kv.is_some_and(|old_kv| {
                    let not_broken =
                        Record::read(&old_kv.value).is_none_or(|record| record.state == RecordState::Claim);
                    release.token.is_none_or(|token| {
                        not_broken && self.token_blocks().first(old_kv.create_revision) == Some(token.number)
                    })
                });
                if ended_own_hold { Released::Freed } else { Released::NotThere }
            }
            Err(error) => Released::Unknown(error),
        }
    }

    /// Revokes the lease of an ended claim if no other claim ever used the lease and the lease is the first such lease
    /// of this client. So a program that acquires only one lock leaves no lease behind; a program that acquires more
    /// locks keeps its later leases for reuse.
    pub(crate) async fn end_lease_used_once(&self, session: &Session) {
        if !self.keeps_leases.load(Ordering::Relaxed) && session.end_if_used_once() {
            self.keeps_leases.store(true, Ordering::Relaxed);
            self.forget_lease(session.id);
            // If the request is lost, the lease ends by itself.
            let _ = runtime::within(REVOKE_LIMIT, self.ask(Revoke { id: session.id })).await;
        }
    }

    /// Ends the claim, with a minimum hold if the release asks for one. Returns the key of the claim as it was before.
    async fn end_claim(
        &self,
        release: &Release,
        OwnKeys { key, revision, with_lock_key }: &OwnKeys,
        raise_epoch_of: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        if let Some((keys, held)) = with_lock_key {
            return self.end_claim_with_lock_key(release, keys, *held, raise_epoch_of).await;
        }
        let revision = *revision;
        if let (Some(min_hold), Some(token)) = (release.min_hold, release.token)
            && let Some(held) = self
                .release_with_min_hold((key, None), (release.id, token.number), min_hold, raise_epoch_of)
                .await?
        {
            return Ok(Some(held));
        }
        if release.min_hold.is_none() && revision.is_some() && raise_epoch_of.is_none() {
            let may_delete = |entry: &mut Entry| entry.data.begin_deletion();
            if self.claims().get(release.id).is_some_and(may_delete) {
                return self.delete_key(release.id, key).await;
            }
        }
        self.delete(release.id, key, revision, raise_epoch_of).await
    }

    /// Deletes the key of a claim without conditions, which costs the server a third less than a transaction. Returns
    /// the key as it was. The deletion may arrive late, so no other claim uses the key unless it was answered.
    async fn delete_key(&self, id: ClaimId, key: &[u8]) -> Result<Option<KeyValue>, EngineError> {
        let delete = DeleteRange { key: key.to_vec(), prev_kv: true, ..DeleteRange::default() };
        let deleted = self.ask(delete).await;
        if deleted.as_ref().err().is_none_or(|error| error.fault != Fault::Unknown)
            && let Some(entry) = self.claims().get(id)
        {
            entry.data.deletion_settled();
        }
        Ok(deleted?.1.prev_kvs.pop())
    }

    /// Deletes the key of a claim, created at this revision if that is known, unless the key is a minimum hold. Returns
    /// the key as it was; `None` if nothing was deleted. `raise_epoch_of` is the lease of requests that may be in
    /// flight: the same transaction raises the epoch of this lease, so that none of these requests can create a key any
    /// more (R9).
    pub(crate) async fn delete(
        &self,
        id: ClaimId,
        key: &[u8],
        revision: Option<i64>,
        raise_epoch_of: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        if self.layout() == Layout::Election {
            return self.delete_candidate(id, key, revision, raise_epoch_of).await;
        }
        let mut conditions = deletion_conditions(id, key, revision);
        loop {
            let deleted = match self.delete_if(key, conditions.clone(), raise_epoch_of).await {
                Err(Failed::Sent(status)) if raise_epoch_of.is_some() && is_database_full(&status) => {
                    // A full server accepts deletions only. So the deletion does not raise the epoch here, and the
                    // caller has to do so later.
                    self.delete_if(key, conditions, None).await.map_err(Failed::classified)?;
                    return Err(EngineError::new(Fault::Unknown, classify(&status).message));
                }
                deleted => deleted.map_err(Failed::classified)?,
            };
            match deleted {
                Deleted::Done(old_kv) => return Ok(Some(old_kv)),
                // The hold was broken before this client learned the create revision of its key.
                Deleted::NotDone(Some(old_kv)) if revision.is_none() && is_broken_claim(&old_kv, id) => {
                    conditions = deletion_conditions(id, key, Some(old_kv.create_revision));
                }
                Deleted::NotDone(_) => return Ok(None),
            }
        }
    }

    /// The same with `layout=election`, where the value of a key says nothing of its claim.
    async fn delete_candidate(
        &self,
        id: ClaimId,
        key: &[u8],
        revision: Option<i64>,
        raise_epoch_of: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        let lease = self.claims().get(id).map(|entry| {
            // As long as this deletion may arrive late, no other claim uses the key.
            entry.data.begin_deletion();
            entry.data.lease_slot.session().id
        });
        let condition = match (revision, lease) {
            (Some(revision), _) => compare::created(key, revision),
            (None, Some(lease)) => compare::leased(key, lease),
            (None, None) => return Ok(None),
        };
        let deleted =
            self.delete_if(key, vec![condition], raise_epoch_of).await.map_err(Failed::classified)?;
        if let Some(entry) = self.claims().get(id) {
            entry.data.deletion_settled();
        }
        Ok(match deleted {
            Deleted::Done(old_kv) => Some(old_kv),
            Deleted::NotDone(_) => None,
        })
    }

    /// Deletes the key if these conditions hold. Raises the epoch of the lease `raise_epoch_of` in either case.
    async fn delete_if(
        &self,
        key: &[u8],
        conditions: Vec<Compare>,
        mut raise_epoch_of: Option<i64>,
    ) -> Result<Deleted, Failed> {
        loop {
            let put_epoch = raise_epoch_of.map(|lease| Put {
                key: keys::epoch_key(self.prefix(), lease),
                value: Vec::new(),
                lease,
            });
            let delete = DeleteRange { key: key.to_vec(), prev_kv: true, ..DeleteRange::default() };
            let mut success = vec![delete.into()];
            success.extend(put_epoch.clone().map(Into::into));
            let mut failure = vec![Range::key(key).into()];
            failure.extend(put_epoch.map(Into::into));
            let txn = Txn { compare: conditions.clone(), success, failure };
            let mut reply = match self.call(txn).await {
                Ok((_, reply)) => reply,
                Err(Failed::Sent(status)) if raise_epoch_of.is_some() && is_lease_gone(&status) => {
                    // A lease that has ended accepts no keys.
                    raise_epoch_of = None;
                    continue;
                }
                Err(failed) => return Err(failed),
            };
            if let Some(session) = raise_epoch_of.and_then(|lease| self.sessions.get(lease)) {
                session.raise_epoch_to(reply.revision());
            }
            let unreadable = || Failed::NotSent(unreadable());
            return if reply.succeeded {
                reply
                    .deleted(KEY_OP)
                    .and_then(|mut keys| keys.pop())
                    .map(Deleted::Done)
                    .ok_or_else(unreadable)
            } else {
                reply.range(KEY_OP).map(|mut range| Deleted::NotDone(range.kvs.pop())).ok_or_else(unreadable)
            };
        }
    }

    /// Ends a claim that sent no request in time. On an error the caller must repeat the call.
    pub(crate) async fn end_overdue_claim(&self, id: ClaimId) -> Result<(), EngineError> {
        let registered = self.claims().get(id).map(|entry| {
            let key = (entry.data.key.clone(), entry.state.own().copied());
            (key, entry.data.queue_and_lock_key(), Arc::clone(entry.data.lease_slot.session()))
        });
        let Some(((key, revision), with_lock_key, session)) = registered else { return Ok(()) };
        let now = self.now();
        // A late request of the claim must not create its key after this call.
        let may_arrive_late = match revision {
            Some(_) => self.in_flight.is_unsettled(id, now),
            None => self.in_flight.release(id, self.next_request_number(), now, now.after(REQUEST_LIFE)),
        };
        // The keys of a lease end with it.
        if !session.has_ended() {
            let raise_epoch_of = Some(session.id).filter(|_| may_arrive_late);
            match with_lock_key {
                Some(keys) => drop(self.delete_queue_and_lock_key(id, &keys, raise_epoch_of).await?),
                None => drop(self.delete(id, &key, revision, raise_epoch_of).await?),
            }
        }
        self.unwatch(id);
        let now = self.now();
        drop(self.claims().record_end(id, now));
        self.wake_maintenance.notify_one();
        Ok(())
    }

    /// The transaction that turns a hold into a minimum hold: the key stays at its position, and moves to a lease that
    /// no other key uses and that is not kept alive. It changes nothing if the claim does not hold.
    pub(crate) fn min_hold_txn(
        key: &[u8],
        (id, token): (ClaimId, i64),
        min_hold: Duration,
        lease: i64,
    ) -> Txn {
        let record = Record { state: RecordState::MinHold, id, hold_time: min_hold, owner: String::new() };
        Txn {
            compare: vec![compare::created(key, token), compare::value_before(key, BEFORE_BROKEN)],
            success: vec![Put { key: key.to_vec(), value: record.text(), lease }.into()],
            failure: Vec::new(),
        }
    }
}

/// The keys that a claim may have on the server.
struct OwnKeys {
    key: Vec<u8>,
    /// The revision at which the key by which the claim waits or holds was created, if that is known.
    revision: Option<i64>,
    /// With `layout=key`: both keys, and the revision at which the claim created the lock key, if it holds.
    with_lock_key: Option<(QueueAndLockKey, Option<i64>)>,
}

/// The result of a deletion.
enum Deleted {
    /// The key was deleted; it had this value.
    Done(KeyValue),
    /// Nothing was deleted; the key exists with this value, or does not exist.
    NotDone(Option<KeyValue>),
}

/// The conditions that the key exists, belongs to this claim, and is not a minimum hold. A key is reused, so its name
/// alone proves nothing.
fn deletion_conditions(id: ClaimId, key: &[u8], revision: Option<i64>) -> Vec<Compare> {
    if let Some(revision) = revision {
        return vec![compare::created(key, revision), compare::value_before(key, BEFORE_MIN_HOLD)];
    }
    let (from, to) = claim_record_bounds(id);
    vec![compare::value_after(key, &from), compare::value_before(key, &to)]
}

/// Whether this key is the broken hold of this claim.
fn is_broken_claim(kv: &KeyValue, id: ClaimId) -> bool {
    Record::read(&kv.value).is_some_and(|record| record.id == id && record.state == RecordState::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deletion that was given up may arrive when another claim uses the key.
    #[test]
    fn a_deletion_requires_the_key_of_its_claim() {
        let id = ClaimId([0xab; 16]);
        let by_revision = deletion_conditions(id, b"k", Some(7));
        assert!(by_revision.contains(&compare::created(b"k", 7)));
        // A release whose reply was lost is repeated, and may have begun the minimum hold.
        assert!(by_revision.contains(&compare::value_before(b"k", BEFORE_MIN_HOLD)));
        let record = |id| {
            Record { state: RecordState::Claim, id, hold_time: Duration::ZERO, owner: String::new() }.text()
        };
        let (from, to) = claim_record_bounds(id);
        assert_eq!(
            deletion_conditions(id, b"k", None),
            [compare::value_after(b"k", &from), compare::value_before(b"k", &to)]
        );
        assert!(from < record(id) && record(id) < to && to < record(ClaimId([0xac; 16])));
    }
}

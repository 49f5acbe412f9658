//! Ends claims.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Fault, Release, Released};

use crate::{
    client::{Client, Failed},
    engine::REQUEST_LIFE,
    error::{classify, is_full, is_lease_gone, unreadable},
    keys,
    record::{BEFORE_BROKEN, BEFORE_MIN_HOLD, Record, RecordState, of_claim},
    runtime,
    session::Session,
    wire::{Compare, DeleteRange, KeyValue, Put, Range, Revoke, Txn, compare},
};

/// How long a release waits for the end of its lease, which is not part of the release.
const REVOKE_LIMIT: Duration = Duration::from_secs(1);

impl Client {
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        join_all(releases.iter().map(|release| self.release_one(release))).await
    }

    async fn release_one(&self, release: &Release) -> Released {
        let now = self.now();
        // Requests may overtake each other, so one that is in flight may arrive after this one.
        let mark_dead = self.in_flight.release(release.id, self.request(), now, now.after(REQUEST_LIFE));
        let known = self.claims().get(release.id).map(|entry| {
            let session = Arc::clone(entry.data.slot.session());
            (entry.data.key.clone(), entry.state.own().copied(), session)
        });
        // A claim that is not in the table never sent a request.
        let Some((key, revision, session)) = known else { return Released::NotThere };
        self.unwatch(release.id);
        let mark_dead = Some(session.id).filter(|_| mark_dead && !session.is_gone());
        match self.end(release, &key, revision, mark_dead).await {
            Ok(found) => {
                self.claims().remove(release.id);
                self.in_flight.settle(release.id);
                self.end_lease_used_once(&session).await;
                let own = found.is_some_and(|found| {
                    let whole =
                        Record::read(&found.value).is_none_or(|record| record.state == RecordState::Claim);
                    release.token.is_none_or(|token| {
                        whole
                            && i64::try_from(token.number).is_ok_and(|number| number == found.create_revision)
                    })
                });
                if own { Released::Freed } else { Released::NotThere }
            }
            Err(error) => Released::Unknown(error),
        }
    }

    /// A program that takes only one lock leaves no lease behind. A program that takes more keeps the later leases for
    /// reuse.
    pub(crate) async fn end_lease_used_once(&self, session: &Session) {
        if !self.keeps_leases.load(Ordering::Relaxed) && session.end_if_used_once() {
            self.keeps_leases.store(true, Ordering::Relaxed);
            self.forget_lease(session.id);
            // If the request is lost, the lease ends by itself.
            let _ = runtime::within(REVOKE_LIMIT, self.ask(Revoke { id: session.id })).await;
        }
    }

    /// Ends the claim. Returns the key that it had.
    async fn end(
        &self,
        release: &Release,
        key: &[u8],
        revision: Option<i64>,
        mark_dead: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        if let (Some(min_hold), Some(token)) = (release.min_hold, release.token)
            && let Some(held) =
                self.release_with_min_hold(key, (release.id, token.number), min_hold, mark_dead).await?
        {
            return Ok(Some(held));
        }
        self.delete(release.id, key, revision, mark_dead).await
    }

    /// Deletes the key of a claim, created at this revision if that is known, unless it is a minimum hold. `mark_dead`
    /// is the lease of requests that may be in flight: the same transaction raises its epoch, so that none of them can
    /// create a key any more (R9).
    pub(crate) async fn delete(
        &self,
        id: ClaimId,
        key: &[u8],
        revision: Option<i64>,
        mark_dead: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        let mut conditions = conditions(id, key, revision);
        loop {
            let deleted = match self.delete_if(key, conditions.clone(), mark_dead).await {
                Err(Failed::Sent(status)) if mark_dead.is_some() && is_full(&status) => {
                    // A full server accepts deletions only. The rest has to be tried again.
                    self.delete_if(key, conditions, None).await.map_err(Failed::classified)?;
                    return Err(EngineError::new(Fault::Unknown, classify(&status).message));
                }
                deleted => deleted.map_err(Failed::classified)?,
            };
            match deleted {
                Deleted::This(found) => return Ok(Some(found)),
                // The hold was broken before this client learned the create revision of its key.
                Deleted::Not(Some(found)) if revision.is_none() && is_broken_claim(&found, id) => {
                    conditions = self::conditions(id, key, Some(found.create_revision));
                }
                Deleted::Not(_) => return Ok(None),
            }
        }
    }

    async fn delete_if(
        &self,
        key: &[u8],
        conditions: Vec<Compare>,
        mut mark_dead: Option<i64>,
    ) -> Result<Deleted, Failed> {
        loop {
            let raise = mark_dead.map(|lease| Put {
                key: keys::epoch(self.prefix(), lease),
                value: Vec::new(),
                lease,
            });
            let delete = DeleteRange { key: key.to_vec(), prev_kv: true, ..DeleteRange::default() };
            let mut success = vec![delete.into()];
            success.extend(raise.clone().map(Into::into));
            let mut failure = vec![Range::key(key).into()];
            failure.extend(raise.map(Into::into));
            let txn = Txn { compare: conditions.clone(), success, failure };
            let mut reply = match self.call(txn).await {
                Ok((_, reply)) => reply,
                Err(Failed::Sent(status)) if mark_dead.is_some() && is_lease_gone(&status) => {
                    // A lease that has ended accepts no keys.
                    mark_dead = None;
                    continue;
                }
                Err(failed) => return Err(failed),
            };
            if let Some(session) = mark_dead.and_then(|lease| self.sessions.get(lease)) {
                session.epoch_raised(reply.revision());
            }
            let unreadable = || Failed::NotSent(unreadable());
            return if reply.succeeded {
                reply.deleted(0).and_then(|mut all| all.pop()).map(Deleted::This).ok_or_else(unreadable)
            } else {
                reply.range(0).map(|mut found| Deleted::Not(found.kvs.pop())).ok_or_else(unreadable)
            };
        }
    }

    /// Ends a claim without a sign of life in time. On an error the caller repeats it.
    pub(crate) async fn end_overdue_claim(&self, id: ClaimId) -> Result<(), EngineError> {
        let known = self.claims().get(id).map(|entry| {
            (entry.data.key.clone(), entry.state.own().copied(), Arc::clone(entry.data.slot.session()))
        });
        let Some((key, revision, session)) = known else { return Ok(()) };
        let now = self.now();
        // A claim with an unknown result must not appear later.
        let mark_dead = match revision {
            Some(_) => self.in_flight.is_unsettled(id, now),
            None => self.in_flight.release(id, self.request(), now, now.after(REQUEST_LIFE)),
        };
        // The keys of a lease end with it.
        if !session.is_gone() {
            self.delete(id, &key, revision, Some(session.id).filter(|_| mark_dead)).await?;
        }
        self.unwatch(id);
        let now = self.now();
        drop(self.claims().ended(id, now));
        self.wake_maintenance.notify_one();
        Ok(())
    }

    /// The transaction that turns a hold into a minimum hold: its key stays, at its position, on a lease of its own
    /// without keep-alives. It fails if the claim does not hold.
    pub(crate) fn min_hold_txn(
        key: &[u8],
        (id, token): (ClaimId, i64),
        min_hold: Duration,
        lease: i64,
    ) -> Txn {
        let record = Record { state: RecordState::MinHold, id, time: min_hold, owner: String::new() };
        Txn {
            compare: vec![compare::created(key, token), compare::value_before(key, BEFORE_BROKEN)],
            success: vec![Put { key: key.to_vec(), value: record.text(), lease }.into()],
            failure: Vec::new(),
        }
    }
}

/// The result of a deletion.
enum Deleted {
    This(KeyValue),
    /// The key that exists instead.
    Not(Option<KeyValue>),
}

/// The conditions that the key exists, belongs to this claim, and is not a minimum hold. A key is reused, so its name
/// alone proves nothing.
fn conditions(id: ClaimId, key: &[u8], revision: Option<i64>) -> Vec<Compare> {
    if let Some(revision) = revision {
        return vec![compare::created(key, revision), compare::value_before(key, BEFORE_MIN_HOLD)];
    }
    let (from, to) = of_claim(id);
    vec![compare::value_after(key, &from), compare::value_before(key, &to)]
}

fn is_broken_claim(found: &KeyValue, id: ClaimId) -> bool {
    Record::read(&found.value).is_some_and(|record| record.id == id && record.state == RecordState::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An abandoned request may arrive when another claim uses the key.
    #[test]
    fn a_deletion_requires_the_key_of_its_claim() {
        let id = ClaimId([0xab; 16]);
        let of_known = conditions(id, b"k", Some(7));
        assert!(of_known.contains(&compare::created(b"k", 7)));
        // A release whose reply was lost is repeated, and may have begun the minimum hold.
        assert!(of_known.contains(&compare::value_before(b"k", BEFORE_MIN_HOLD)));
        let record =
            |id| Record { state: RecordState::Claim, id, time: Duration::ZERO, owner: String::new() }.text();
        let (from, to) = of_claim(id);
        assert_eq!(
            conditions(id, b"k", None),
            [compare::value_after(b"k", &from), compare::value_before(b"k", &to)]
        );
        assert!(from < record(id) && record(id) < to && to < record(ClaimId([0xac; 16])));
    }
}

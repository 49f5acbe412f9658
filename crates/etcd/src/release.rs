//! Ending claims.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Fault, Release, Released};

use crate::{
    book::Place,
    card::{BEFORE_BROKEN, BEFORE_KEPT, Card, State},
    client::{Client, Failed},
    engine::REQUEST_LIFE,
    error::{is_full, is_lease_gone, sort, unreadable},
    keys,
    wire::{Compare, DeleteRange, KeyValue, Put, Txn, compare},
};

impl Client {
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        join_all(releases.iter().map(|release| self.release_one(release))).await
    }

    async fn release_one(&self, release: &Release) -> Released {
        self.unwatch(release.id);
        let now = self.now();
        // Requests may overtake each other, so one without an answer may still come after this one.
        let bury = self.flights.release(release.id, self.request(), now, now.after(REQUEST_LIFE));
        let session = self.book().get(release.id).map(|entry| entry.seat.session().clone());
        let bury = session.as_ref().filter(|session| bury && !session.is_gone()).map(|session| session.id);
        match self.end(release, bury).await {
            Ok(found) => {
                self.book().remove(release.id);
                self.flights.settle(release.id);
                let own = found.is_some_and(|found| {
                    let whole = Card::read(&found.value).is_none_or(|card| card.state == State::Claim);
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

    /// What was there of the claim.
    async fn end(&self, release: &Release, bury: Option<i64>) -> Result<Option<KeyValue>, EngineError> {
        let key = self.dir(&release.name).key(release.id, release.mode);
        if let (Some(keep), Some(token)) = (release.keep, release.token)
            && let Some(kept) = self.keep(&key, token.number, keep, bury).await?
        {
            return Ok(Some(kept));
        }
        self.delete(&key, bury).await
    }

    /// Deletes the key of a claim, unless the name is kept by it. With a lease whose requests may still be under way, no earlier
    /// one of them creates anything any more (R9).
    pub(crate) async fn delete(
        &self,
        key: &[u8],
        bury: Option<i64>,
    ) -> Result<Option<KeyValue>, EngineError> {
        let condition = compare::value_before(key, BEFORE_KEPT);
        match self.delete_if(key, condition.clone(), bury).await {
            Err(Failed::There(status)) if bury.is_some() && is_full(&status) => {
                // A full server takes deletions alone. The rest is to be tried again.
                self.delete_if(key, condition, None).await.map_err(Failed::sorted)?;
                Err(EngineError::new(Fault::Unknown, sort(&status).message))
            }
            deleted => deleted.map_err(Failed::sorted),
        }
    }

    async fn delete_if(
        &self,
        key: &[u8],
        condition: Compare,
        mut bury: Option<i64>,
    ) -> Result<Option<KeyValue>, Failed> {
        loop {
            let raise =
                bury.map(|lease| Put { key: keys::epoch(self.prefix(), lease), value: Vec::new(), lease });
            let delete = DeleteRange { key: key.to_vec(), prev_kv: true, ..DeleteRange::default() };
            let mut success = vec![delete.into()];
            success.extend(raise.clone().map(Into::into));
            let txn = Txn {
                compare: vec![condition.clone()],
                success,
                failure: raise.into_iter().map(Into::into).collect(),
            };
            let mut said = match self.call(txn).await {
                Ok((_, said)) => said,
                Err(Failed::There(status)) if bury.is_some() && is_lease_gone(&status) => {
                    // Nothing can be created on it any more.
                    bury = None;
                    continue;
                }
                Err(failed) => return Err(failed),
            };
            if let Some(session) = bury.and_then(|lease| self.sessions.get(lease)) {
                session.raised(said.revision());
            }
            if !said.succeeded {
                return Ok(None);
            }
            return Ok(said.deleted(0).ok_or_else(|| Failed::Here(unreadable()))?.pop());
        }
    }

    /// Ends a claim for which nobody spoke in time; to be done again until it is certain. One that takes a new place afterwards
    /// has a key of the same name, so a late deletion compares when it was created.
    pub(crate) async fn end_overdue(&self, id: ClaimId) -> Result<(), EngineError> {
        let known = self.book().get(id).map(|entry| {
            let revision = match entry.place {
                Place::Ending { revision, .. } => revision,
                _ => None,
            };
            (entry.key.clone(), Arc::clone(entry.seat.session()), revision)
        });
        let Some((key, session, revision)) = known else { return Ok(()) };
        let now = self.now();
        if session.is_gone() {
            // Its keys are gone with it.
        } else if let Some(revision) = revision {
            let buried = Some(session.id).filter(|_| self.flights.is_unsettled(id, now));
            let condition = compare::created(&key, revision);
            self.delete_if(&key, condition, buried).await.map_err(Failed::sorted)?;
        } else {
            // What became of it is not known, so nothing is to come of it any more.
            let bury = self.flights.release(id, self.request(), now, now.after(REQUEST_LIFE));
            self.delete(&key, Some(session.id).filter(|_| bury)).await?;
        }
        self.unwatch(id);
        let now = self.now();
        drop(self.book().ended(id, now));
        self.sooner.notify_one();
        Ok(())
    }

    /// What a claim that holds leaves when the name is to stay taken: its key, in its place, on a lease of its own that nobody
    /// keeps alive. `None` if it does not hold.
    pub(crate) fn keeping(key: &[u8], token: i64, keep: std::time::Duration, lease: i64) -> Txn {
        let card = Card { state: State::Kept, time: keep, owner: String::new() };
        Txn {
            compare: vec![compare::created(key, token), compare::value_before(key, BEFORE_BROKEN)],
            success: vec![Put { key: key.to_vec(), value: card.text(), lease }.into()],
            failure: Vec::new(),
        }
    }
}

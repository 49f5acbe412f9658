//! The end of claims.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Instant, Mode, Name, Release, Released};

use crate::{
    claims::{Own, State},
    client::Client,
    conn::Conn,
    engine::{REQUEST_LIFE, REQUEST_TIMEOUT},
    error::Failed,
    runtime,
    sessions::Session,
    wire::{Close, Code, Delete, Exists, MultiOp},
};

/// How many nodes are deleted in one step.
const BATCH: usize = 128;
/// The pauses, in milliseconds, between the checks for a late node of an unanswered request. Together they are as long
/// as a request lives.
const LATE_REQUEST_LOOKS: [u64; 5] = [200, 800, 2000, 4000, 8000];

/// What is known of a claim that is to be ended.
struct EndingClaim {
    session: Arc<Session>,
    name: Name,
    mode: Mode,
    paths: Vec<String>,
    /// The claim may have more nodes than `paths`.
    unsettled: bool,
    /// The token, if the claim holds.
    token: Option<i64>,
}

impl Client {
    pub(crate) async fn release(&self, releases: &[Release]) -> Vec<Released> {
        join_all(releases.iter().map(|release| self.release_one(release))).await
    }

    async fn release_one(&self, release: &Release) -> Released {
        let now = self.now();
        // From now on no request of the claim is sent.
        self.in_flight.release(release.id, 0, now, now.after(REQUEST_LIFE));
        self.unwatch(release.id);
        // This client has created nothing for an unknown claim.
        let Some(known) = self.known(release.id) else { return Released::NotThere };
        let held = known.token;
        match self.end_for_good(release.id, known).await {
            Ok(deleted) => {
                drop(self.claims().remove(release.id));
                let own = release
                    .token
                    .is_none_or(|token| held.is_some_and(|held| u64::try_from(held) == Ok(token.number)));
                if deleted && own { Released::Freed } else { Released::NotThere }
            }
            Err(failed) => Released::Unknown(failed.into()),
        }
    }

    /// R9: a request of the claim was not answered, and it is not known until when it can be applied. Deletes what it
    /// creates later.
    fn expect_late_request(&self, id: ClaimId, known: EndingClaim) {
        let client = Weak::clone(&self.me);
        runtime::spawn(async move {
            for pause in LATE_REQUEST_LOOKS {
                runtime::sleep(Duration::from_millis(pause)).await;
                let Some(client) = client.upgrade().filter(|_| !known.session.facts.is_gone()) else {
                    return;
                };
                let looked = runtime::within(REQUEST_TIMEOUT, client.end(id, &known)).await;
                if let Some(Ok(true)) = looked {
                    tracing::debug!(%id, "a claim was made after it was released, and is deleted");
                }
            }
        });
    }

    fn known(&self, id: ClaimId) -> Option<EndingClaim> {
        let mut claims = self.claims();
        let entry = claims.get(id)?;
        let token = match entry.state {
            State::Held { ref own, .. } => Some(own.czxid),
            _ => None,
        };
        Some(EndingClaim {
            session: Arc::clone(entry.data.slot.session()),
            name: entry.name.clone(),
            mode: entry.mode,
            paths: entry.state.own().map(Own::paths).unwrap_or_default(),
            unsettled: entry.data.unsettled || entry.data.may_appear_late,
            token,
        })
    }

    /// Deletes all that the claim has on the server. True if there was something.
    pub(crate) async fn end_known(&self, id: ClaimId) -> Result<bool, Failed> {
        match self.known(id) {
            Some(known) => self.end_for_good(id, known).await,
            None => Ok(false),
        }
    }

    /// The same, also for what an unanswered request may create later.
    async fn end_for_good(&self, id: ClaimId, known: EndingClaim) -> Result<bool, Failed> {
        let there = self.end(id, &known).await?;
        if known.unsettled {
            self.expect_late_request(id, known);
        }
        Ok(there)
    }

    async fn end(&self, id: ClaimId, known: &EndingClaim) -> Result<bool, Failed> {
        let session = &known.session;
        // The nodes of an ended session are gone.
        if session.facts.is_gone() {
            return Ok(false);
        }
        match self.end_on(id, known).await {
            Err(failed) if failed.is_expired() => {
                session.facts.end();
                Ok(false)
            }
            Err(_) if session.facts.is_gone() => Ok(false),
            ended => ended,
        }
    }

    async fn end_on(&self, id: ClaimId, known: &EndingClaim) -> Result<bool, Failed> {
        let session = &known.session;
        // A program that takes a single lock leaves no session behind. A program that takes more locks keeps its next
        // session.
        if !known.unsettled
            && !self.keeps_sessions.load(Ordering::Relaxed)
            && session.facts.close_after_only_use()
        {
            return self.end_with_session(session, &known.paths).await;
        }
        let conn = session.link.conn().await?;
        let mut paths = known.paths.clone();
        if known.unsettled {
            let dir = self.dir(&known.name);
            for path in [Some(dir.queue_of(known.mode)), known.mode.limit().map(|_| dir.permits())]
                .into_iter()
                .flatten()
            {
                paths.extend(self.nodes_of(&conn, &path, id).await?);
            }
            paths.sort();
            paths.dedup();
        }
        self.delete_all(session, &conn, &paths).await
    }

    /// Closes the session, which has no other nodes. True if all these nodes existed.
    async fn end_with_session(&self, session: &Arc<Session>, paths: &[String]) -> Result<bool, Failed> {
        // From now on the request to close may arrive at any time, also on an old connection. So no other claim may use
        // the session, and an unanswered release is sent again.
        let conn = session.link.conn().await?;
        let looks: Vec<_> = paths.iter().map(|path| conn.send(&Exists { path })).collect();
        let closed = conn.send(&Close);
        let mut there = !paths.is_empty();
        for look in looks {
            there &= look.answer().await.is_ok();
        }
        closed.answer().await?;
        self.keeps_sessions.store(true, Ordering::Relaxed);
        session.facts.end();
        self.sessions.forget(session);
        Ok(there)
    }

    /// Deletes those of these nodes that exist. True if at least one existed.
    pub(crate) async fn delete_all(
        &self,
        session: &Session,
        conn: &Conn,
        paths: &[String],
    ) -> Result<bool, Failed> {
        let mut any = false;
        for paths in paths.chunks(BATCH) {
            let delete = |path: &String| Delete { path: path.clone(), version: -1 };
            if let [_, _, ..] = paths {
                let steps = paths.iter().map(|path| MultiOp::Delete(delete(path))).collect();
                match self.change(session, conn, steps).await? {
                    Ok(_) => {
                        any = true;
                        continue;
                    }
                    Err((_, Code::NO_NODE)) => {}
                    Err((_, code)) => return Err(Failed::Refused(code)),
                }
            }
            for path in paths {
                let sent = self.now();
                match conn.send(&delete(path)).answer().await {
                    Ok(()) => {
                        session.facts.confirmed(sent, self.now());
                        any = true;
                    }
                    Err(failed) if failed.is(Code::NO_NODE) => {}
                    Err(failed) => return Err(failed),
                }
            }
        }
        Ok(any)
    }

    /// Ends a claim that sent no request in time. The caller repeats this until it succeeds.
    pub(crate) async fn end_expired(&self, id: ClaimId) -> Result<(), EngineError> {
        self.unwatch(id);
        self.end_known(id).await?;
        let now: Instant = self.now();
        if let Some(entry) = self.claims().get(id) {
            entry.data.unsettled = false;
        }
        drop(self.claims().ended(id, now));
        self.sooner.notify_one();
        Ok(())
    }
}

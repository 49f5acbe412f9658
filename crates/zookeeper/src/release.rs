//! The end of claims.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Instant, Mode, Name, Release, Released};

use crate::{
    claims::{OwnNodes, State},
    client::Client,
    conn::Conn,
    engine::{REQUEST_LIFE, REQUEST_TIMEOUT},
    error::Failed,
    runtime,
    sessions::Session,
    wire::{ANY_VERSION, Close, Delete, ErrorCode, Exists, MultiOp},
};

/// The number of nodes that are deleted in one step.
const BATCH: usize = 128;
/// The pauses, in milliseconds, between the checks for a late node of an unanswered request. Together they are as long
/// as `REQUEST_LIFE`.
const LATE_REQUEST_CHECKS_MILLIS: [u64; 5] = [200, 800, 2000, 4000, 8000];

/// What is known of a claim that is to be ended.
struct EndingClaim {
    session: Arc<Session>,
    name: Name,
    mode: Mode,
    /// The nodes that the client knows.
    own: Option<OwnNodes>,
    /// The claim may have more nodes than `own`.
    unsettled: bool,
    /// The first token, if the claim holds.
    token: Option<u64>,
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
        // This client has created nothing for a claim that is not in the claim table.
        let Some(ending) = self.ending_claim(release.id) else { return Released::NotThere };
        let held_token = ending.token;
        match self.end_now_and_later(release.id, ending).await {
            Ok(deleted) => {
                drop(self.claims().remove(release.id));
                let was_holder = release.token.is_none_or(|token| held_token == Some(token.number));
                if deleted && was_holder { Released::Freed } else { Released::NotThere }
            }
            Err(failed) => Released::Unknown(failed.into()),
        }
    }

    /// Forgets a claim whose node was deleted together with the write of a memo, or before it, and deletes nodes that
    /// its earlier requests may have created or may still create.
    pub(crate) async fn end_hold_of_memo(&self, id: ClaimId) {
        let now = self.now();
        self.in_flight.release(id, 0, now, now.after(REQUEST_LIFE));
        self.unwatch(id);
        if let Some(ending) = self.ending_claim(id).filter(|ending| ending.unsettled) {
            // If this fails, the later checks delete the nodes.
            let _ = self.end_existing_nodes(id, &ending).await;
            self.delete_late_nodes(id, ending);
        }
        drop(self.claims().remove(id));
    }

    /// Checks in the background for late nodes of the claim, and deletes them (R9): a request of the claim was not
    /// answered, and it is not known until when the server can still apply the request.
    fn delete_late_nodes(&self, id: ClaimId, ending: EndingClaim) {
        let client = Weak::clone(&self.weak_self);
        runtime::spawn(async move {
            for pause in LATE_REQUEST_CHECKS_MILLIS {
                runtime::sleep(Duration::from_millis(pause)).await;
                let Some(client) = client.upgrade().filter(|_| !ending.session.state.has_ended()) else {
                    return;
                };
                let deleted = runtime::within(REQUEST_TIMEOUT, client.end_existing_nodes(id, &ending)).await;
                if let Some(Ok(true)) = deleted {
                    tracing::debug!(%id, "a claim was made after it was released, and is deleted");
                }
            }
        });
    }

    /// What is known of a claim; `None` if it is not in the claim table.
    fn ending_claim(&self, id: ClaimId) -> Option<EndingClaim> {
        let mut claims = self.claims();
        let entry = claims.get(id)?;
        let token = match entry.state {
            State::Held { ref own, .. } => self.config.token_blocks.first(own.czxid),
            _ => None,
        };
        Some(EndingClaim {
            session: Arc::clone(entry.data.session_slot.session()),
            name: entry.name.clone(),
            mode: entry.mode,
            own: entry.state.own().cloned(),
            unsettled: entry.data.unsettled || entry.data.may_appear_late,
            token,
        })
    }

    /// Ends a claim, if it is in the claim table: deletes all its nodes, now and later. True if it had a node.
    pub(crate) async fn end_claim(&self, id: ClaimId) -> Result<bool, Failed> {
        match self.ending_claim(id) {
            Some(ending) => self.end_now_and_later(id, ending).await,
            None => Ok(false),
        }
    }

    /// Deletes all nodes of the claim, and later also the nodes that an unanswered request may create. True if the
    /// claim had a node.
    async fn end_now_and_later(&self, id: ClaimId, ending: EndingClaim) -> Result<bool, Failed> {
        let existed = self.end_existing_nodes(id, &ending).await?;
        if ending.unsettled {
            self.delete_late_nodes(id, ending);
        }
        Ok(existed)
    }

    /// Deletes all nodes of the claim, unless they have ended with their session. True if the claim had a node.
    async fn end_existing_nodes(&self, id: ClaimId, ending: &EndingClaim) -> Result<bool, Failed> {
        let session = &ending.session;
        // The nodes of an ended session are gone.
        if session.state.has_ended() {
            return Ok(false);
        }
        match self.delete_on_server(id, ending).await {
            Err(failed) if failed.is_expired() => {
                session.state.end();
                Ok(false)
            }
            Err(_) if session.state.has_ended() => Ok(false),
            ended => ended,
        }
    }

    /// Deletes all nodes of the claim, or closes the session that only this claim used.
    async fn delete_on_server(&self, id: ClaimId, ending: &EndingClaim) -> Result<bool, Failed> {
        let session = &ending.session;
        // A program that acquires a single lock leaves no session behind. A program that acquires more locks keeps its
        // next session.
        if !ending.unsettled
            && !self.keeps_sessions.load(Ordering::Relaxed)
            && session.state.close_if_used_once()
        {
            let paths = ending.own.as_ref().map(OwnNodes::paths).unwrap_or_default();
            return self.end_with_session(session, &paths).await;
        }
        let conn = session.link.conn().await?;
        let mut paths = self.own_paths(&conn, id, ending).await?;
        // If the answer to the deletion is lost, the deletion is sent again, and another program's node may have the
        // path by then.
        self.node_may_be_gone(id);
        if ending.unsettled {
            let dir = self.dir(&ending.name);
            for path in [Some(dir.queue_of(ending.mode)), ending.mode.limit().map(|_| dir.permits())]
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

    /// The paths of the nodes that the client knows of the claim, on a connection that was opened before this call. In
    /// the plain layout, another program's node possibly has such a path by now, and must not be deleted.
    async fn own_paths(&self, conn: &Conn, id: ClaimId, ending: &EndingClaim) -> Result<Vec<String>, Failed> {
        let Some(own) = &ending.own else { return Ok(Vec::new()) };
        // A claim that is not in the claim table was released before.
        let may_be_gone = self.claims().get(id).is_none_or(|entry| entry.data.node_may_be_gone);
        let is_theirs = self.is_plain() && may_be_gone && !self.has_node(conn, own).await?;
        Ok(if is_theirs { Vec::new() } else { own.paths() })
    }

    /// Closes the session, which has no nodes except those at `paths`. True if all of these were nodes of the session.
    async fn end_with_session(&self, session: &Arc<Session>, paths: &[String]) -> Result<bool, Failed> {
        // The request to close may arrive at any later time, also on an old connection. So no other claim may use the
        // session any more, and an unanswered release is sent again.
        let conn = session.link.conn().await?;
        let checks: Vec<_> = paths.iter().map(|path| conn.send(&Exists { path })).collect();
        let closing = conn.send(&Close);
        let mut existed = !paths.is_empty();
        for check in checks {
            existed &= check.answer().await.is_ok_and(|stat| stat.ephemeral_owner == session.state.id());
        }
        closing.answer().await?;
        self.keeps_sessions.store(true, Ordering::Relaxed);
        session.state.end();
        self.sessions.forget(session);
        Ok(existed)
    }

    /// Deletes these nodes, as far as they exist. True if at least one existed.
    pub(crate) async fn delete_all(
        &self,
        session: &Session,
        conn: &Conn,
        paths: &[String],
    ) -> Result<bool, Failed> {
        let mut deleted_any = false;
        for paths in paths.chunks(BATCH) {
            let delete = |path: &String| Delete { path: path.clone(), version: ANY_VERSION };
            if let [_, _, ..] = paths {
                let steps = paths.iter().map(|path| MultiOp::Delete(delete(path))).collect();
                match self.apply_changes(session, conn, steps).await? {
                    Ok(_) => {
                        deleted_any = true;
                        continue;
                    }
                    Err((_, ErrorCode::NO_NODE)) => {}
                    Err((_, code)) => return Err(Failed::Refused(code)),
                }
            }
            for path in paths {
                let sent = self.now();
                match conn.send(&delete(path)).answer().await {
                    Ok(()) => {
                        session.state.record_answer(sent, self.now());
                        deleted_any = true;
                    }
                    Err(failed) if failed.is(ErrorCode::NO_NODE) => {}
                    Err(failed) => return Err(failed),
                }
            }
        }
        Ok(deleted_any)
    }

    /// Ends a claim that sent no request in time. The caller must repeat the call until it succeeds.
    pub(crate) async fn end_overdue_claim(&self, id: ClaimId) -> Result<(), EngineError> {
        self.unwatch(id);
        self.end_claim(id).await?;
        let now: Instant = self.now();
        if let Some(entry) = self.claims().get(id) {
            entry.data.unsettled = false;
        }
        drop(self.claims().record_end(id, now));
        self.wake_maintenance.notify_one();
        Ok(())
    }
}

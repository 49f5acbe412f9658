//! Renewals. The maintenance task keeps the session alive. A renewal extends a hold within the validity of the session,
//! and checks its node, because an operator may have broken the hold.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{ClaimId, EngineError, Fault, Hold, Instant, Loss, Renewed, TimeLeft};

use crate::{
    claims::{OwnNodes, State},
    client::Client,
    conn::Conn,
    error::Failed,
    latch::is_broken,
    sessions::Session,
    watches::{PendingWatch, WatchTarget},
    wire::{ErrorCode, GetData, Stat},
};

impl Client {
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        let sessions_and_nodes: Vec<Option<(Arc<Session>, OwnNodes)>> =
            holds.iter().map(|hold| self.session_of_hold(hold)).collect();
        let mut sessions: Vec<&Arc<Session>> =
            sessions_and_nodes.iter().flatten().map(|(session, _)| session).collect();
        sessions.sort_unstable_by_key(|session| Arc::as_ptr(session));
        sessions.dedup_by(|one, other| Arc::ptr_eq(one, other));
        // A server that answers a change has applied all earlier changes. So a heartbeat, which is a change, goes
        // first: the reads that follow it are not older than the renewal.
        join_all(sessions.into_iter().map(|session| async move {
            let conn = session.conn().await?;
            self.send_heartbeat(session, &conn).await
        }))
        .await;
        join_all(
            holds
                .iter()
                .zip(sessions_and_nodes)
                .map(|(hold, session_and_nodes)| self.renew_one(hold, session_and_nodes)),
        )
        .await
    }

    async fn renew_one(&self, hold: &Hold, session_and_nodes: Option<(Arc<Session>, OwnNodes)>) -> Renewed {
        let Some((session, own)) = session_and_nodes else { return Renewed::Lost(Loss::Gone) };
        match self.check_node(hold, &session, &own).await {
            Ok(Some(valid_until)) => self.renewal_result(hold, valid_until),
            Ok(None) => Renewed::Lost(Loss::Broken),
            Err(failed) if failed.is(ErrorCode::NO_NODE) => {
                self.node_may_be_gone(hold.id);
                Renewed::Lost(Loss::Gone)
            }
            Err(_) if session.state.has_ended() => Renewed::Lost(Loss::Gone),
            Err(failed) => Renewed::Unknown(failed.into()),
        }
    }

    /// The session of a hold and its nodes; `None` if the claim does not hold any more. A renewal
    /// counts as a request of the claim, so the claim does not expire while the renewal runs.
    fn session_of_hold(&self, hold: &Hold) -> Option<(Arc<Session>, OwnNodes)> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(hold.id)?;
        let State::Held { own, confirmed } = &entry.state else { return None };
        if entry.name != hold.name || self.config.token_blocks.first(own.czxid) != Some(hold.token.number) {
            return None;
        }
        let (session, own) = (Arc::clone(entry.data.session_slot.session()), own.clone());
        let confirmed = *confirmed;
        if session.state.has_ended() {
            return None;
        }
        let until = now.after(session.state.remaining(now).unwrap_or_default().min(hold.ttl));
        claims.hold(hold.id, own.clone(), confirmed, (now, until));
        Some((session, own))
    }

    /// Reads the first node of a hold. Returns until when the session was valid before that read; `None` if the hold
    /// was broken.
    async fn check_node(
        &self,
        hold: &Hold,
        session: &Session,
        own: &OwnNodes,
    ) -> Result<Option<Instant>, Failed> {
        self.wait_until_confirmed(session).await?;
        let valid_until = session.state.valid_until();
        let conn = session.conn().await?;
        let (data, stat) = self.watch_own(&conn, hold.id, own).await?;
        if stat.ephemeral_owner != session.state.id() {
            return Err(Failed::NO_NODE);
        }
        Ok((!is_broken(own.name(), &data)).then_some(valid_until))
    }

    /// Reads the first node of a claim and watches it. The error is [`Failed::NO_NODE`] if another node has its path.
    pub(crate) async fn watch_own(
        &self,
        conn: &Conn,
        id: ClaimId,
        own: &OwnNodes,
    ) -> Result<(Vec<u8>, Stat), Failed> {
        let pending_watch = PendingWatch::new(&conn.watches, &own.path, WatchTarget::Own(id));
        let (data, stat) = conn.send(&GetData { path: &own.path, watch: true }).answer().await?;
        if !own.is_first_node(&stat) {
            return Err(Failed::NO_NODE);
        }
        pending_watch.confirm();
        Ok((data, stat))
    }

    /// Watches a hold that has lasted for a while, and reports if it is already lost.
    pub(crate) async fn watch_hold(&self, id: ClaimId) {
        let held = {
            let mut claims = self.claims();
            claims.get(id).and_then(|entry| match &entry.state {
                State::Held { own, .. } => {
                    Some((entry.data.session_slot.session().link.live()?, own.clone(), entry.name.clone()))
                }
                _ => None,
            })
        };
        let Some((conn, own, name)) = held else { return };
        match self.watch_own(&conn, id, &own).await {
            Ok((data, _)) if is_broken(own.name(), &data) => self.report_loss(name, id, Loss::Broken),
            Err(failed) if failed.is(ErrorCode::NO_NODE) && !self.may_have_ended(id) => {
                self.report_loss(name, id, Loss::Gone);
            }
            // The next renewal finds the loss.
            Ok(_) | Err(_) => {}
        }
    }

    /// Whether the hold was released, or possibly ended with the write of a memo: then its node is deleted without a
    /// loss.
    pub(crate) fn may_have_ended(&self, id: ClaimId) -> bool {
        self.in_flight.is_released(id, self.now())
            || self.claims().get(id).is_none_or(|entry| entry.data.may_have_ended)
    }

    /// Extends a hold whose node was checked, on a session that is valid until `valid_until`.
    fn renewal_result(&self, hold: &Hold, valid_until: Instant) -> Renewed {
        let now = self.now();
        let ttl = valid_until.since(now).min(hold.ttl);
        if ttl.is_zero() {
            return Renewed::Unknown(EngineError::new(
                Fault::Unknown,
                "no quorum confirmed the session in time",
            ));
        }
        let mut claims = self.claims();
        match claims.get(hold.id).map(|entry| entry.state.clone()) {
            Some(State::Held { own, .. })
                if self.config.token_blocks.first(own.czxid) == Some(hold.token.number) =>
            {
                claims.hold(hold.id, own, true, (now, now.after(ttl)));
                Renewed::Extended { ttl: Some(ttl), left: TimeLeft::Unknown }
            }
            _ => Renewed::Lost(Loss::Gone),
        }
    }
}

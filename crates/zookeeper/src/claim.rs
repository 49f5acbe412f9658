//! Claims: creating one and asking for its state. A free name takes one round trip.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, EngineError, Fault, Hint, How, Lineage, Mode};

use crate::{
    claims::{Blocker, OnSession, Own, State},
    client::Client,
    conn::Conn,
    error::Failed,
    keys::{self, Dir},
    lock_of,
    position::refuses,
    record::Record,
    sessions::Session,
    wire::{Children, Code, Create, Delete, Kind, MultiOp, Sync},
};

/// How often a claim is tried again because something that it depends on changed.
const TRIES: u32 = 8;

/// What a claim works with, as long as its connection lasts.
pub(crate) struct ClaimContext {
    pub(crate) session: Arc<Session>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) lineage: Lineage,
    pub(crate) dir: Dir,
}

/// The result of one attempt: an answer, or that the claim has to be tried again.
pub(crate) enum Attempt {
    Answer(Answer),
    Again,
}

impl Client {
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let bytes = keys::claim_bytes(claim, &self.dir(&claim.name), &self.acl)?;
        let state = self.state_of(claim);
        if state.is_none() && how == How::Ask {
            return Ok(Answer::Gone);
        }
        let was_there = matches!(state, Some(State::Waiting { .. } | State::Held { .. }));
        let mut error = EngineError::new(Fault::Retry, "what the claim depends on changed again and again");
        for _ in 0..TRIES {
            if self.in_flight.is_released(claim.id, self.now()) {
                return Ok(Answer::Gone);
            }
            match self.state_of(claim) {
                Some(State::Gone) => return Ok(Answer::Gone),
                Some(State::Ending { .. }) => return Ok(Answer::Waiting(Hint::default())),
                Some(State::Waiting { .. } | State::Held { .. }) if self.session_of(claim).is_none() => {
                    // The session ended, and the claim's nodes with it.
                    return Ok(self.give_up(claim));
                }
                _ => {}
            }
            match self.try_once(claim, bytes).await {
                Ok(Attempt::Answer(answer)) => return Ok(answer),
                Ok(Attempt::Again) => {}
                Err(Failed::Here((fault, message))) => {
                    error = EngineError::new(fault, message);
                    break;
                }
                Err(failed) if failed.is_expired() => self.session_of(claim).iter().for_each(|session| {
                    session.facts.end();
                }),
                Err(failed) => {
                    error = failed.into();
                    break;
                }
            }
        }
        Err(if was_there { error } else { self.failed(claim, error).await })
    }

    /// The error of a claim that had no node before. An error that promises that nothing was applied is not followed by
    /// a release, so such an error is returned only if nothing is left on the server.
    async fn failed(&self, claim: &Claim, error: EngineError) -> EngineError {
        let left =
            self.claims().get(claim.id).map(|entry| entry.data.unsettled || entry.state != State::Made);
        match (left, error.fault) {
            (None, _) | (_, Fault::Unknown) => error,
            (Some(false), _) => {
                self.forget_claim(claim);
                error
            }
            // Deleting needs a connection, which would have to be made first.
            (Some(true), Fault::Retry) => EngineError::new(Fault::Unknown, error.message),
            (Some(true), _) => match self.end_known(claim.id).await {
                Ok(_) => {
                    self.forget_claim(claim);
                    error
                }
                Err(_) => EngineError::new(Fault::Unknown, error.message),
            },
        }
    }

    fn state_of(&self, claim: &Claim) -> Option<State> {
        self.claims().get(claim.id).map(|entry| entry.state.clone())
    }

    /// The session of a known claim, unless the session is over.
    fn session_of(&self, claim: &Claim) -> Option<Arc<Session>> {
        let session = self.claims().get(claim.id).map(|entry| Arc::clone(entry.data.slot.session()));
        session.filter(|session| !session.facts.is_gone())
    }

    /// Whether a change for this claim may have been applied without an answer.
    pub(crate) fn set_unsettled(&self, claim: &Claim, unsettled: bool) {
        if let Some(entry) = self.claims().get(claim.id) {
            entry.data.unsettled = unsettled;
        }
    }

    async fn try_once(&self, claim: &Claim, bytes: usize) -> Result<Attempt, Failed> {
        let context = self.enter(claim, bytes).await?;
        if self.claims().get(claim.id).is_some_and(|entry| entry.data.unsettled) {
            self.settle(claim, &context).await?;
        }
        let (closed, state) = {
            let mut claims = self.claims();
            (claims.closed(claim.id), claims.get(claim.id).map(|entry| entry.state.clone()))
        };
        match (closed, state) {
            (Some(closed), _) => Ok(Attempt::Answer(closed)),
            (None, Some(State::Waiting { own, before })) => {
                self.ask_waiting(claim, &context, &own, &before).await
            }
            (None, Some(State::Held { own, .. })) => self.ask_held(claim, &context, own).await,
            (None, _) => self.create(claim, &context).await,
        }
    }

    /// Records the claim before its first request leaves, so that every outcome can be undone.
    async fn enter(&self, claim: &Claim, bytes: usize) -> Result<ClaimContext, Failed> {
        loop {
            let now = self.now();
            if let Some(entry) = self.claims().get(claim.id) {
                entry.asked_again(now);
            }
            let session = match self.session_of(claim) {
                Some(session) => session,
                // A claim whose session ended starts again: the server has none of its nodes.
                None => {
                    let slot = self.slot(claim.ttl, bytes)?;
                    let session = Arc::clone(slot.session());
                    self.claims().enter(claim, OnSession::new(slot), now);
                    session
                }
            };
            let fresh = self.freshen(&session).await;
            if session.facts.is_gone() {
                continue;
            }
            fresh?;
            let conn = session.conn().await?;
            let lineage = self.lineage(&session, &conn).await?;
            return Ok(ClaimContext { session, conn, lineage, dir: self.dir(&claim.name) });
        }
    }

    async fn create(&self, claim: &Claim, context: &ClaimContext) -> Result<Attempt, Failed> {
        if self.is_used_up(claim, context).await? {
            return Err(used_up().into());
        }
        // Creates no node that would have to be deleted again.
        if !claim.may_queue && !self.may_be_free(claim, context).await? {
            self.forget_claim(claim);
            return Ok(Attempt::Answer(Answer::Taken(Hint::default())));
        }
        let queue = context.dir.queue_of(claim.mode);
        let create = Create {
            path: context.dir.node_prefix(claim.id, claim.mode, !claim.may_queue, self.config.layout),
            data: self.record(claim, context).text(),
            acl: self.acl.clone(),
            kind: Kind::Sequential,
        };
        self.set_unsettled(claim, true);
        let sent = self.now();
        let (created, listed) =
            (context.conn.send(&create), context.conn.send(&Children { path: &queue, watch: false }));
        // An answer with an unexpected path leaves unknown what was created.
        let created =
            created.answer().await.and_then(|made| Own::made(&create.path, made).ok_or(Failed::Unreadable));
        if !created.as_ref().is_err_and(Failed::is_unknown) {
            self.set_unsettled(claim, false);
        }
        let own = match created {
            Ok(own) => own,
            Err(failed) if failed.is(Code::NO_NODE) => {
                self.make(&context.conn, context.dir.path(), Kind::Container, Vec::new()).await?;
                if let Some(limit) = claim.mode.limit() {
                    self.make_semaphore(context, limit).await?;
                }
                return Ok(Attempt::Again);
            }
            Err(failed) => return Err(failed),
        };
        let now = self.now();
        context.session.facts.confirmed(sent, now);
        let known = self.claims().get(claim.id).map(|entry| {
            if entry.state == State::Made {
                entry.waits(own.clone(), Blocker::Unknown, now);
            }
        });
        if known.is_none() {
            // The claim was given up while the request was in flight.
            self.delete_all(&context.session, &context.conn, &[own.path]).await?;
            return Ok(Attempt::Answer(Answer::Gone));
        }
        let children = listed.answer().await?;
        self.evaluate_position(claim, context, &own, children, true).await
    }

    pub(crate) fn record(&self, claim: &Claim, context: &ClaimContext) -> Record {
        // The time that the operator who breaks the hold waits. The grant comes after the record is written, and its
        // ttl is often a little shorter.
        let time = context.session.facts.max_validity().min(claim.ttl) * 15 / 16;
        Record { broken: false, time, owner: claim.owner.to_string() }
    }

    /// Whether a try may succeed. The server of this connection may lag behind; so it catches up with its leader first,
    /// in the same round trip, because "taken" must be true (I13).
    async fn may_be_free(&self, claim: &Claim, context: &ClaimContext) -> Result<bool, Failed> {
        let (queue, permits) = (context.dir.queue_of(claim.mode), context.dir.permits());
        let caught_up = context.conn.send(&Sync { path: context.dir.path() });
        let listed = context.conn.send(&Children { path: &queue, watch: false });
        let of_permits = |_| context.conn.send(&Children { path: &permits, watch: false });
        let taken = claim.mode.limit().map(of_permits);
        caught_up.answer().await?;
        let queue = none_if_absent(listed.answer().await)?;
        let refused = refuses(&keys::queue_nodes(&queue), claim.mode).is_some();
        let (Mode::Permits { count, limit }, Some(taken)) = (claim.mode, taken) else { return Ok(!refused) };
        let taken = none_if_absent(taken.answer().await)?.len();
        if !refused && taken + count as usize <= limit as usize {
            return Ok(true);
        }
        let clash = self.clash(claim, context, &queue).await?;
        clash.map_or(Ok(false), |clash| Err(clash.into()))
    }

    /// Whether the counter of a queue is used up, or nearly. Deletes the directory of an empty queue, so that the
    /// counter starts again.
    async fn is_used_up(&self, claim: &Claim, context: &ClaimContext) -> Result<bool, Failed> {
        let queue = context.dir.queue_of(claim.mode);
        if !lock_of(&self.used_up).contains(&queue) {
            return Ok(false);
        }
        let there = children(&context.conn, &queue).await?;
        if !keys::queue_nodes(&there).is_empty() {
            return Ok(true);
        }
        // The directory may contain the directories of an unused semaphore.
        let below = there.iter().map(|name| format!("{queue}/{name}"));
        for path in below.chain([queue.clone()]) {
            match context.conn.send(&Delete { path, version: -1 }).answer().await {
                Ok(()) | Err(Failed::Refused(Code::NO_NODE)) => {}
                // The server itself deletes empty containers some time later.
                Err(Failed::Refused(Code::NO_AUTH | Code::NOT_EMPTY)) => return Ok(true),
                Err(failed) => return Err(failed),
            }
        }
        lock_of(&self.used_up).remove(&queue);
        Ok(false)
    }

    /// The server has nothing of the claim and will not get anything of it.
    pub(crate) fn forget_claim(&self, claim: &Claim) {
        self.unwatch(claim.id);
        drop(self.claims().remove(claim.id));
    }

    /// The claim ends without a hold. Its release deletes what is left of it.
    pub(crate) fn give_up(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.claims().get(claim.id) {
            entry.state = State::Gone;
            entry.data.unsettled = true;
        }
        Answer::Gone
    }

    /// Deletes the node of an attempt that does not wait. Until the deletion is certain, the claim stays unknown.
    pub(crate) async fn take_back(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
    ) -> Result<(), Failed> {
        self.delete_all(&context.session, &context.conn, std::slice::from_ref(&own.path)).await?;
        self.forget_claim(claim);
        Ok(())
    }

    /// The same, as long as the node at `before` exists. `None` if it does not exist: the attempt may be the head of
    /// the queue now, and then has to go on, because other tries are refused because of the head.
    pub(crate) async fn take_back_behind(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        before: String,
    ) -> Result<Option<Answer>, Failed> {
        let delete = Delete { path: own.path.clone(), version: -1 };
        let steps = vec![MultiOp::Check { path: before, version: -1 }, MultiOp::Delete(delete)];
        match self.change(&context.session, &context.conn, steps).await? {
            Err((0, Code::NO_NODE)) => return Ok(None),
            Ok(()) => self.forget_claim(claim),
            // The node ahead is not readable with this login, or the claim's own node is gone.
            Err(_) => self.take_back(claim, context, own).await?,
        }
        Ok(Some(Answer::Taken(Hint::default())))
    }
}

/// The children of a directory; none if it does not exist.
pub(crate) async fn children(conn: &Conn, path: &str) -> Result<Vec<String>, Failed> {
    none_if_absent(conn.send(&Children { path, watch: false }).answer().await)
}

fn none_if_absent(children: Result<Vec<String>, Failed>) -> Result<Vec<String>, Failed> {
    match children {
        Err(failed) if failed.is(Code::NO_NODE) => Ok(Vec::new()),
        children => children,
    }
}

fn used_up() -> EngineError {
    let why = "the counter of its directory is nearly used up: it starts again when no claim holds or waits";
    EngineError::new(Fault::Retry, why)
}

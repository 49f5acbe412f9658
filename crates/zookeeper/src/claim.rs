//! Claims: creating one and asking for its state. A claim of a free name takes one round trip.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, EngineError, Fault, Hint, How, Lineage, Mode, UNWATCHED_POLL};

use crate::{
    claims::{Blocker, ClaimSession, OwnNodes, State},
    client::Client,
    conn::Conn,
    enqueue::ClaimAge,
    error::{Failed, changed_again},
    keys::{self, Dir},
    lock_mutex, plain,
    position::refusing_node,
    record::Record,
    sessions::Session,
    wire::{ANY_VERSION, Delete, ErrorCode, GetChildren, MultiOp, Sync},
};

/// The most attempts of a claim. A claim is attempted again if something on which the attempt relied has changed.
pub(crate) const MAX_TRIES: u32 = 8;

/// The fraction of the longest validity that a record gives as the time of its hold.
const RECORD_TIME_PARTS: (u32, u32) = (15, 16);

/// The session, the connection and the directory that one attempt of a claim uses.
pub(crate) struct ClaimContext {
    pub(crate) session: Arc<Session>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) lineage: Lineage,
    pub(crate) dir: Dir,
}

/// The result of one step of a claim: an answer, or that another step has to follow.
pub(crate) enum StepResult {
    Answer(Answer),
    Again,
}

impl Client {
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        self.check_claim(claim)?;
        let path_bytes = keys::claim_path_bytes(claim, &self.dir(&claim.name), &self.acl)?;
        let state = self.state_of(claim);
        if state.is_none() && how == How::Ask {
            return Ok(Answer::Gone);
        }
        let had_node = matches!(state, Some(State::Waiting { .. } | State::Held { .. }));
        let mut error = changed_again();
        for _ in 0..MAX_TRIES {
            if self.in_flight.is_released(claim.id, self.now()) {
                return Ok(Answer::Gone);
            }
            match self.state_of(claim) {
                Some(State::Gone) => return Ok(Answer::Gone),
                Some(State::Ending { .. }) => return Ok(Answer::Waiting(Hint::ask_in(UNWATCHED_POLL))),
                Some(State::Waiting { .. } | State::Held { .. }) if self.session_of(claim).is_none() => {
                    // The session ended, and the claim's nodes with it.
                    return Ok(self.give_up(claim));
                }
                _ => {}
            }
            match self.do_next_step(claim, path_bytes).await {
                Ok(StepResult::Answer(answer)) => return Ok(answer),
                Ok(StepResult::Again) => {}
                Err(Failed::Local((fault, message))) => {
                    error = EngineError::new(fault, message);
                    break;
                }
                Err(failed) if failed.is_expired() => self.session_of(claim).iter().for_each(|session| {
                    session.state.end();
                }),
                Err(failed) => {
                    error = failed.into();
                    break;
                }
            }
        }
        Err(if had_node { error } else { self.error_after_cleanup(claim, error).await })
    }

    /// Returns the error for a claim that had no node before this call. After an error which says that nothing was
    /// applied, core sends no release. So before it returns such an error, this function deletes what the claim
    /// possibly has on the server. If the deletion is not possible, the error has [`Fault::Unknown`] instead.
    pub(crate) async fn error_after_cleanup(&self, claim: &Claim, error: EngineError) -> EngineError {
        let has_leftovers =
            self.claims().get(claim.id).map(|entry| entry.data.unsettled || entry.state != State::Made);
        match (has_leftovers, error.fault) {
            (None, _) | (_, Fault::Unknown) => error,
            (Some(false), _) => {
                self.forget_claim(claim);
                error
            }
            // There is no connection for a deletion.
            (Some(true), Fault::Retry) => EngineError::new(Fault::Unknown, error.message),
            (Some(true), _) => match self.end_claim(claim.id).await {
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
    pub(crate) fn session_of(&self, claim: &Claim) -> Option<Arc<Session>> {
        let session = self.claims().get(claim.id).map(|entry| Arc::clone(entry.data.session_slot.session()));
        session.filter(|session| !session.state.has_ended())
    }

    /// Records whether a change for this claim may have been applied without an answer.
    pub(crate) fn set_unsettled(&self, claim: &Claim, unsettled: bool) {
        if let Some(entry) = self.claims().get(claim.id) {
            entry.data.unsettled = unsettled;
        }
    }

    /// Does the next step of the claim: creates its node, or asks for its state.
    async fn do_next_step(&self, claim: &Claim, path_bytes: usize) -> Result<StepResult, Failed> {
        let context = self.register(claim, path_bytes).await?;
        if self.claims().get(claim.id).is_some_and(|entry| entry.data.unsettled) {
            self.settle(claim, &context).await?;
        }
        let (closed, state) = {
            let mut claims = self.claims();
            (claims.answer_without_request(claim.id), claims.get(claim.id).map(|entry| entry.state.clone()))
        };
        match (closed, state) {
            (Some(closed), _) => Ok(StepResult::Answer(closed)),
            (None, Some(State::Waiting { own, blocker })) => {
                self.recheck_waiting(claim, &context, &own, &blocker).await
            }
            (None, Some(State::Held { own, .. })) => self.recheck_held(claim, &context, own).await,
            (None, _) => self.create_node(claim, &context).await,
        }
    }

    /// Adds the claim to the claim table before its first request is sent, so that every outcome can be undone.
    async fn register(&self, claim: &Claim, path_bytes: usize) -> Result<ClaimContext, Failed> {
        loop {
            let now = self.now();
            if let Some(entry) = self.claims().get(claim.id) {
                entry.asked_again(now);
            }
            let session = match self.session_of(claim) {
                Some(session) => session,
                // A claim whose session ended starts again: the server has none of its nodes.
                None => {
                    let session_slot = self.take_session_slot(claim.ttl, path_bytes)?;
                    let session = Arc::clone(session_slot.session());
                    self.claims().enter(claim, ClaimSession::new(session_slot), now);
                    session
                }
            };
            let confirmed = self.wait_until_confirmed(&session).await;
            if session.state.has_ended() {
                continue;
            }
            confirmed?;
            let conn = session.conn().await?;
            let lineage = self.lineage(&session, &conn).await?;
            return Ok(ClaimContext { session, conn, lineage, dir: self.dir(&claim.name) });
        }
    }

    /// Creates the node of the claim, and reads its position in the queue in the same round trip.
    async fn create_node(&self, claim: &Claim, context: &ClaimContext) -> Result<StepResult, Failed> {
        if self.is_counter_used_up(claim, context).await? {
            return Err(used_up_error().into());
        }
        // A try that cannot succeed creates no node, which would have to be deleted again.
        if !claim.may_queue
            && let Some(hint) = self.taken_hint(claim, context).await?
        {
            self.forget_claim(claim);
            return Ok(StepResult::Answer(Answer::Taken(hint)));
        }
        let queue = context.dir.queue_of(claim.mode);
        let create = self.node_of(claim, context);
        self.set_unsettled(claim, true);
        let sent = self.now();
        let (created, listed) =
            (context.conn.send(&create), context.conn.send(&GetChildren { path: &queue, watch: false }));
        // An answer with an unexpected path leaves unknown what was created.
        let created = created
            .answer()
            .await
            .and_then(|created| OwnNodes::created(&create.path, created).ok_or(Failed::Unreadable));
        if !created.as_ref().is_err_and(Failed::is_unknown) {
            self.set_unsettled(claim, false);
        }
        let own = match created {
            Ok(own) => own,
            Err(failed) if failed.is(ErrorCode::NO_NODE) => {
                self.create_dirs(&context.conn, context.dir.path(), self.dir_kind(), Vec::new()).await?;
                if let Some(limit) = claim.mode.limit() {
                    self.make_semaphore(context, limit).await?;
                }
                return Ok(StepResult::Again);
            }
            Err(failed) => return Err(failed),
        };
        let now = self.now();
        context.session.state.record_answer(sent, now);
        let updated = self.claims().get(claim.id).map(|entry| {
            if entry.state == State::Made {
                entry.waits(own.clone(), Blocker::Unknown, now);
            }
        });
        if updated.is_none() {
            // The claim was given up while the request was in flight.
            self.delete_all(&context.session, &context.conn, &[own.path]).await?;
            return Ok(StepResult::Answer(Answer::Gone));
        }
        let children = listed.answer().await?;
        self.evaluate_position(claim, context, &own, children, ClaimAge::New).await
    }

    /// The record in the node of a claim.
    pub(crate) fn record(&self, claim: &Claim, context: &ClaimContext) -> Record {
        // How long an operator who breaks the hold has to wait. The record is written before the grant is computed, so
        // the ttl of the grant is often a little shorter than this time.
        let hold_time =
            context.session.state.max_validity().min(claim.ttl) * RECORD_TIME_PARTS.0 / RECORD_TIME_PARTS.1;
        let id = self.is_plain().then_some(claim.id);
        Record { broken: false, hold_time, id, owner: claim.owner.to_string() }
    }

    /// The answer "taken" for a try (a claim that does not wait) that cannot succeed in the present state of the queue;
    /// `None` if it can. The answer must be true (I13), but the server of this connection possibly lags behind the
    /// quorum. So a `sync` in the same round trip brings the server up to date first.
    async fn taken_hint(&self, claim: &Claim, context: &ClaimContext) -> Result<Option<Hint>, Failed> {
        let (queue, permits) = (context.dir.queue_of(claim.mode), context.dir.permits());
        let sync_answer = context.conn.send(&Sync { path: context.dir.path() });
        let listed = context.conn.send(&GetChildren { path: &queue, watch: false });
        let list_permits = |_| context.conn.send(&GetChildren { path: &permits, watch: false });
        let permit_list = claim.mode.limit().map(list_permits);
        sync_answer.answer().await?;
        let children = none_if_absent(listed.answer().await)?;
        let nodes = keys::queue_nodes(&children);
        let refused = refusing_node(&nodes, claim.mode).is_some();
        let (Mode::Permits { count, limit }, Some(permit_list)) = (claim.mode, permit_list) else {
            if !refused {
                return Ok(None);
            }
            let persistent = self.persistent_node(context, &queue, nodes.first()).await?;
            return Ok(Some(plain::hint(persistent.is_some())));
        };
        let held_permits = none_if_absent(permit_list.answer().await)?.len();
        if !refused && held_permits + count as usize <= limit as usize {
            return Ok(None);
        }
        let kind_mismatch = self.kind_mismatch(claim, context, &children).await?;
        kind_mismatch.map_or(Ok(Some(Hint::default())), |kind_mismatch| Err(kind_mismatch.into()))
    }

    /// Whether the counter that numbers the nodes of a queue is used up, or nearly. If the queue is empty, deletes its
    /// directory, so that the counter starts again, and then returns false.
    async fn is_counter_used_up(&self, claim: &Claim, context: &ClaimContext) -> Result<bool, Failed> {
        let queue = context.dir.queue_of(claim.mode);
        if !lock_mutex(&self.used_up_queues).contains(&queue) {
            return Ok(false);
        }
        let children_of_queue = children(&context.conn, &queue).await?;
        if !keys::queue_nodes(&children_of_queue).is_empty() {
            return Ok(true);
        }
        if self.is_plain() {
            if !self.restart_counter(context, &children_of_queue).await? {
                return Ok(true);
            }
            lock_mutex(&self.used_up_queues).remove(&queue);
            return Ok(false);
        }
        // The directory may contain the directories of an unused semaphore.
        let child_paths = children_of_queue.iter().map(|name| format!("{queue}/{name}"));
        for path in child_paths.chain([queue.clone()]) {
            match context.conn.send(&Delete { path, version: ANY_VERSION }).answer().await {
                Ok(()) | Err(Failed::Refused(ErrorCode::NO_NODE)) => {}
                // The server itself deletes empty containers some time later.
                Err(Failed::Refused(ErrorCode::NO_AUTH | ErrorCode::NOT_EMPTY)) => return Ok(true),
                Err(failed) => return Err(failed),
            }
        }
        lock_mutex(&self.used_up_queues).remove(&queue);
        Ok(false)
    }

    /// Removes a claim from the claim table. The server has no node of the claim, and no request can create one.
    pub(crate) fn forget_claim(&self, claim: &Claim) {
        self.unwatch(claim.id);
        drop(self.claims().remove(claim.id));
    }

    /// Ends a claim without a hold. The release of the claim later deletes nodes that still exist.
    pub(crate) fn give_up(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.claims().get(claim.id) {
            entry.state = State::Gone;
            entry.data.unsettled = true;
        }
        Answer::Gone
    }

    /// Deletes the node of a try that was not granted. Until the server confirms the deletion, the claim stays in the
    /// claim table.
    pub(crate) async fn withdraw(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
    ) -> Result<(), Failed> {
        self.node_may_be_gone(claim.id);
        self.delete_all(&context.session, &context.conn, std::slice::from_ref(&own.path)).await?;
        self.forget_claim(claim);
        Ok(())
    }

    /// Deletes the node of a try if the node at `ahead` exists, and returns that the name is taken. If the node at
    /// `ahead` does not exist, deletes nothing and returns `None`. Then the try is possibly the head of the queue now,
    /// and the caller must go on with it, because other tries are refused on account of the head.
    pub(crate) async fn withdraw_behind(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        ahead: String,
        hint: Hint,
    ) -> Result<Option<Answer>, Failed> {
        let delete = Delete { path: own.path.clone(), version: ANY_VERSION };
        let steps = vec![MultiOp::Check { path: ahead, version: ANY_VERSION }, MultiOp::Delete(delete)];
        self.node_may_be_gone(claim.id);
        match self.apply_changes(&context.session, &context.conn, steps).await? {
            Err((0, ErrorCode::NO_NODE)) => return Ok(None),
            Ok(()) => self.forget_claim(claim),
            // The node ahead is not readable with this login, or the claim's own node is gone.
            Err(_) => self.withdraw(claim, context, own).await?,
        }
        Ok(Some(Answer::Taken(hint)))
    }
}

/// The children of a directory; none if it does not exist.
pub(crate) async fn children(conn: &Conn, path: &str) -> Result<Vec<String>, Failed> {
    none_if_absent(conn.send(&GetChildren { path, watch: false }).answer().await)
}

/// No children if the directory does not exist.
pub(crate) fn none_if_absent(children: Result<Vec<String>, Failed>) -> Result<Vec<String>, Failed> {
    match children {
        Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(Vec::new()),
        children => children,
    }
}

/// The error for a queue whose counter is nearly used up.
fn used_up_error() -> EngineError {
    let why = "the counter of its directory is nearly used up: it starts again when no claim holds or waits";
    EngineError::new(Fault::Retry, why)
}

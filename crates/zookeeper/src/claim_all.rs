//! Several names in one step: one `multi` creates the nodes of all claims, and the positions of the nodes are read in
//! the same round trip.
//!
//! No condition of a `multi` says that a queue is empty. So the nodes are created whatever is ahead of them, and a set
//! that is not granted deletes all of them in one step. All nodes of a set are created by one change, so of two sets
//! one is ahead of the other in the queue of every common name: two sets never wait for each other, and of several sets
//! that compete for free names the first one is granted.

use std::sync::Arc;

use leasehold_core::{AllAnswer, Answer, Claim, EngineError, Hint};

use crate::{
    claim::{ClaimContext, MAX_TRIES, StepResult, none_if_absent},
    claims::{ClaimSession, OwnNodes, State},
    client::Client,
    create_all::{list_all, queues_of},
    error::{Failed, changed_again},
    keys, lock_mutex,
    session::MAX_PATH_BYTES,
    sessions::SessionSlot,
    wire::ErrorCode,
};

/// The result of one attempt: an answer, or that another attempt has to follow.
pub(crate) enum Attempt {
    Answer(AllAnswer),
    Again,
}

impl Client {
    /// Claims all names in one step, or none.
    pub(crate) async fn claim_all(&self, claims: &[Claim]) -> Result<AllAnswer, EngineError> {
        let mut path_bytes = Vec::with_capacity(claims.len());
        for (index, claim) in claims.iter().enumerate() {
            let path_bytes_of = |()| keys::claim_path_bytes(claim, &self.dir(&claim.name), &self.acl);
            match self.check_claim(claim).and_then(path_bytes_of) {
                Ok(bytes) => path_bytes.push(bytes),
                Err(error) => return Ok(AllAnswer::Refused { index, error }),
            }
        }
        if !self.fits_one_step(claims) {
            return Ok(AllAnswer::OneByOne);
        }
        let mut error = changed_again();
        for _ in 0..MAX_TRIES {
            let now = self.now();
            if let Some(index) = claims.iter().position(|claim| self.in_flight.is_released(claim.id, now)) {
                return self.end_all(claims, AllAnswer::Taken { index, hint: Hint::default() }).await;
            }
            match self.attempt_all(claims, &path_bytes).await {
                Ok(Attempt::Answer(answer)) => return Ok(answer),
                Ok(Attempt::Again) => {}
                Err(failed) if failed.is_expired() => {
                    claims.iter().filter_map(|claim| self.session_of(claim)).for_each(|session| {
                        session.state.end();
                    });
                }
                Err(failed) => {
                    error = failed.into();
                    break;
                }
            }
        }
        for claim in claims {
            let of_claim = EngineError::new(error.fault, error.message.clone());
            error = self.error_after_cleanup(claim, of_claim).await;
        }
        Err(error)
    }

    /// Whether one request can claim these names. The permits of a claim are taken by a request of their own, after the
    /// node of the claim has become the head of its queue.
    fn fits_one_step(&self, claims: &[Claim]) -> bool {
        let bytes = |claim: &Claim| keys::create_bytes(claim, &self.dir(&claim.name), &self.acl);
        let used_up = lock_mutex(&self.used_up_queues);
        claims.iter().all(|claim| claim.mode.limit().is_none() && claim.ttl == claims[0].ttl)
            && claims.iter().map(bytes).sum::<usize>() <= MAX_PATH_BYTES
            && !claims.iter().any(|claim| used_up.contains(&self.dir(&claim.name).queue_of(claim.mode)))
    }

    /// One attempt: creates the nodes, unless an earlier request has created them, and decides by their positions.
    async fn attempt_all(&self, claims: &[Claim], path_bytes: &[usize]) -> Result<Attempt, Failed> {
        let Some(contexts) = self.register_all(claims, path_bytes).await? else {
            return Ok(Attempt::Answer(self.end_all(claims, AllAnswer::OneByOne).await?));
        };
        for (claim, context) in claims.iter().zip(&contexts) {
            if self.claims().get(claim.id).is_some_and(|entry| entry.data.unsettled) {
                self.settle(claim, context).await?;
            }
        }
        let own_nodes: Vec<_> = claims.iter().map(|claim| self.own_nodes(claim)).collect();
        let known: Vec<OwnNodes> = own_nodes.iter().flatten().cloned().collect();
        if known.len() == claims.len() {
            return self.decide_again(claims, &contexts, &known).await.map(Attempt::Answer);
        }
        if known.is_empty() {
            return self.create_all(claims, &contexts).await;
        }
        // Of the nodes that an earlier request of the same claims created, some were deleted.
        let index = own_nodes.iter().position(Option::is_none).unwrap_or(0);
        let answer = AllAnswer::Taken { index, hint: Hint::default() };
        Ok(Attempt::Answer(self.end_all(claims, answer).await?))
    }

    /// The nodes of a claim, if an earlier request has created them.
    fn own_nodes(&self, claim: &Claim) -> Option<OwnNodes> {
        self.claims().get(claim.id)?.state.own().cloned()
    }

    /// Adds the claims to the claim table, all on one session. `None` if the session that is chosen has no room for all
    /// of them.
    async fn register_all(
        &self,
        claims: &[Claim],
        path_bytes: &[usize],
    ) -> Result<Option<Vec<ClaimContext>>, Failed> {
        let known = claims.iter().find_map(|claim| self.session_of(claim));
        let mut slot = None;
        let session = match known {
            Some(session) => session,
            None => {
                let taken = self.take_session_slot(claims[0].ttl, path_bytes[0])?;
                Arc::clone(slot.insert(taken).session())
            }
        };
        let now = self.now();
        for (claim, &path_bytes) in claims.iter().zip(path_bytes) {
            match self.session_of(claim) {
                Some(known) if Arc::ptr_eq(&known, &session) => {
                    if let Some(entry) = self.claims().get(claim.id) {
                        entry.asked_again(now);
                    }
                }
                Some(_) => return Ok(None),
                None => {
                    let slot = slot.take().or_else(|| SessionSlot::take(&session, path_bytes));
                    let Some(slot) = slot else { return Ok(None) };
                    self.claims().enter(claim, ClaimSession::new(slot), now);
                }
            }
        }
        let confirmed = self.wait_until_confirmed(&session).await;
        if session.state.has_ended() {
            return Err(Failed::Refused(ErrorCode::SESSION_EXPIRED));
        }
        confirmed?;
        let conn = session.conn().await?;
        let lineage = self.lineage(&session, &conn).await?;
        let context = |claim: &Claim| ClaimContext {
            session: Arc::clone(&session),
            conn: Arc::clone(&conn),
            lineage,
            dir: self.dir(&claim.name),
        };
        Ok(Some(claims.iter().map(context).collect()))
    }

    /// The answer to claims whose nodes an earlier request created.
    async fn decide_again(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        own_nodes: &[OwnNodes],
    ) -> Result<AllAnswer, Failed> {
        let holds = |claim: &Claim| {
            let mut table = self.claims();
            table.get(claim.id).is_some_and(|entry| matches!(entry.state, State::Held { .. }))
        };
        if !claims.iter().all(holds) {
            let lists = list_all(&contexts[0].conn, &queues_of(claims, contexts)).await;
            let children = lists.into_iter().map(none_if_absent).collect::<Result<Vec<_>, _>>()?;
            return self.decide_all(claims, contexts, own_nodes, children).await;
        }
        let mut grants = Vec::with_capacity(claims.len());
        for (index, ((claim, context), own)) in claims.iter().zip(contexts).zip(own_nodes).enumerate() {
            match self.recheck_held(claim, context, own.clone()).await? {
                StepResult::Answer(Answer::Held(grant)) => grants.push(grant),
                StepResult::Answer(_) | StepResult::Again => {
                    let answer = AllAnswer::Taken { index, hint: Hint::default() };
                    return Ok(self.end_all(claims, answer).await?);
                }
            }
        }
        Ok(AllAnswer::Held(grants))
    }

    /// Forgets the claims, which have no nodes now; then returns `answer`. A node that a late request may create is
    /// deleted later.
    pub(crate) async fn forget_all(
        &self,
        claims: &[Claim],
        answer: AllAnswer,
    ) -> Result<AllAnswer, EngineError> {
        let may_appear_late =
            |claim: &Claim| self.claims().get(claim.id).is_some_and(|entry| entry.data.may_appear_late);
        if claims.iter().any(may_appear_late) {
            return self.end_all(claims, answer).await;
        }
        claims.iter().for_each(|claim| self.forget_claim(claim));
        Ok(answer)
    }

    /// Ends the claims, which may have nodes; then returns `answer`.
    pub(crate) async fn end_all(
        &self,
        claims: &[Claim],
        answer: AllAnswer,
    ) -> Result<AllAnswer, EngineError> {
        answer.after_end_of(claims, |releases| async move { Box::pin(self.release(&releases)).await }).await
    }
}

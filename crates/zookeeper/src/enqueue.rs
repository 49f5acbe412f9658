//! The position of a claim in its queue, and what follows from it.
//!
//! Nodes ahead of a claim can only disappear, so a stale answer can delay a grant and never cause a wrong one. No
//! answer proves that the claim's own node still exists after the answer; the validity of the session proves that.

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Hint, Mode, Notification, UNWATCHED_POLL,
    lock_state::MAX_WAITERS,
};

use crate::{
    claim::{ClaimContext, StepResult, children},
    claims::{Blocker, Entry, OwnNodes, State},
    client::Client,
    error::Failed,
    keys::{self, PERMITS, PERMITS_QUEUE},
    lock_mutex, plain,
    position::{position, refusing_node},
    runtime,
    session::session_ended,
    watches::{PendingWatch, WatchTarget},
    wire::{ErrorCode, Exists, GetChildren},
};

/// The most reads of the queue. The queue is read again if the node ahead disappeared before it was watched.
pub(crate) const MAX_READS: u32 = 8;
/// How often a try (a claim that does not wait) reads the queue until the tries ahead of it are decided: for a second
/// in all. A try ahead that is still undecided after that second counts as hanging, and refuses this try as a waiter
/// does: the hanging try can become the head of the queue at any time, and hold.
pub(crate) const MAX_TRY_READS: u32 = 10;
/// The first pause between two reads of a try. Each pause is twice as long as the previous one.
pub(crate) const FIRST_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// Whether the node of a claim was just created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimAge {
    New,
    Earlier,
}

impl Client {
    /// Decides by the position of the claim in its queue whether the claim holds, is refused, or waits; watches the
    /// node that a waiting claim waits for. For a new claim, also checks whether the name is in use as another kind of
    /// lock. There is no such check for earlier claims, because they must not be refused on account of a claim that
    /// came later.
    pub(crate) async fn evaluate_position(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        mut children: Vec<String>,
        age: ClaimAge,
    ) -> Result<StepResult, Failed> {
        let queue = context.dir.queue_of(claim.mode);
        for reads in 0..if claim.may_queue { MAX_READS } else { MAX_TRY_READS + MAX_READS } {
            self.delete_strays(claim, context, own, &mut children).await?;
            let nodes = keys::queue_nodes(&children);
            let Some(position) = position(&nodes, own.name(), claim.mode) else {
                return Ok(StepResult::Answer(self.give_up(claim)));
            };
            if age == ClaimAge::New
                && let Some(kind_mismatch) = self.kind_mismatch(claim, context, &children).await?
            {
                self.withdraw(claim, context, own).await?;
                return Err(kind_mismatch.into());
            }
            if position.counter_used_up {
                self.withdraw(claim, context, own).await?;
                lock_mutex(&self.used_up_queues).insert(queue);
                return Ok(StepResult::Again);
            }
            let Some((blocker, sole)) = position.blocker else {
                return match claim.mode {
                    Mode::Permits { count, limit } => {
                        self.take_permits(claim, context, own, (count, limit)).await
                    }
                    _ => self.record_hold(claim, context, own.clone()).map(StepResult::Answer),
                };
            };
            if !claim.may_queue {
                let own_index = nodes.iter().position(|node| node.name == own.name()).unwrap_or(nodes.len());
                let hanging_try = Some(&blocker).filter(|_| reads >= MAX_TRY_READS);
                match refusing_node(&nodes[..own_index], claim.mode)
                    .map(|refusing| &refusing.name)
                    .or(hanging_try)
                {
                    Some(refusing) => {
                        let ahead = format!("{queue}/{refusing}");
                        let persistent = self.persistent_node(context, &queue, nodes.first()).await?;
                        let hint = plain::hint(persistent.is_some());
                        if let Some(taken) = self.withdraw_behind(claim, context, own, ahead, hint).await? {
                            return Ok(StepResult::Answer(taken));
                        }
                    }
                    None => runtime::sleep(FIRST_PAUSE * 2_u32.pow(reads)).await,
                }
                children = self.queue_of_own(claim, context, own).await?;
                continue;
            }
            if position.ahead as usize > MAX_WAITERS {
                self.withdraw(claim, context, own).await?;
                return Err(EngineError::new(
                    Fault::Refused,
                    "the queue is full: too many claims wait already",
                )
                .into());
            }
            let sole = sole && claim.mode.limit().is_none() && !keys::may_be_replaced(&blocker);
            let path = format!("{queue}/{blocker}");
            let persistent = self.persistent_node(context, &queue, nodes.first()).await?;
            let blocker = Blocker::Node { path, sole, ahead: position.ahead, persistent };
            match self.watch_blocker(claim, context, own, blocker).await? {
                Some(answer) => return Ok(StepResult::Answer(answer)),
                None if sole => {
                    return self.record_hold(claim, context, own.clone()).map(StepResult::Answer);
                }
                None => children = self.queue_of_own(claim, context, own).await?,
            }
        }
        if !claim.may_queue {
            self.withdraw(claim, context, own).await?;
            return Ok(StepResult::Answer(Answer::Taken(Hint::default())));
        }
        // No watch is set for the claim now, so the keeper has to ask again.
        self.mailbox.push(Notification::Recheck { name: claim.name.clone(), id: claim.id });
        Ok(StepResult::Answer(self.waiting_answer(claim)))
    }

    /// Deletes all other nodes of the claim and removes them from `children`. The server has possibly applied a request
    /// that this client gave up. Without the deletion the claim would wait for the node that such a request created.
    pub(crate) async fn delete_strays(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        children: &mut Vec<String>,
    ) -> Result<(), Failed> {
        let queue = context.dir.queue_of(claim.mode);
        // Without an unanswered request, no node is read.
        let may_have_strays = |entry: &mut Entry| entry.data.may_appear_late || entry.data.unsettled;
        let strays_in_data = if self.is_plain() && self.claims().get(claim.id).is_some_and(may_have_strays) {
            self.with_claim_in_data(&context.conn, &queue, children.clone(), claim.id).await?
        } else {
            Vec::new()
        };
        let is_of_claim = |name: &String| keys::belongs_to(name, claim.id) || strays_in_data.contains(name);
        let is_stray = |name: &mut String| is_of_claim(name) && own.name() != name.as_str();
        let strays: Vec<String> =
            children.extract_if(.., is_stray).map(|name| format!("{queue}/{name}")).collect();
        if strays.is_empty() {
            return Ok(());
        }
        self.delete_all(&context.session, &context.conn, &strays).await.map(drop)
    }

    /// Watches what the claim waits for. `None` if the blocker does not exist any more.
    async fn watch_blocker(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        blocker: Blocker,
    ) -> Result<Option<Answer>, Failed> {
        if blocker.is_endless() {
            tracing::warn!(name = %claim.name, "{}", plain::PERSISTENT_NODE);
        }
        let Some(path) = blocker.path().map(str::to_owned) else { return Ok(None) };
        let target = WatchTarget::Blocker(claim.id);
        let is_sole = matches!(blocker, Blocker::Node { sole: true, .. });
        let previous = match self.set_blocker(claim, own, blocker) {
            Some(previous) => previous,
            None => return Ok(Some(self.waiting_answer(claim))),
        };
        if let Some(previous) = previous.path().filter(|previous| *previous != path) {
            context.conn.watches.stop_watching(previous, target);
        }
        // A claim that the deletion of one node grants does not read again: its own node is watched, too.
        let own_watch = async {
            if is_sole { self.watch_own(&context.conn, claim.id, own).await.map(drop) } else { Ok(()) }
        };
        let pending_watch = PendingWatch::new(&context.conn.watches, &path, target);
        // A watch on the children, unlike one on the data, does not report changes of the data.
        let blocker_watch =
            async { context.conn.send(&GetChildren { path: &path, watch: true }).answer().await };
        let (own_watched, blocker_watched) = tokio::join!(own_watch, blocker_watch);
        match own_watched {
            Err(failed) if failed.is(ErrorCode::NO_NODE) => return Ok(Some(self.give_up(claim))),
            own_watched => own_watched?,
        }
        match blocker_watched {
            Ok(_) => {
                pending_watch.confirm();
                Ok(Some(self.waiting_answer(claim)))
            }
            Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(None),
            // This login has no right to read the node ahead. Polls of the directory find out when that node is gone.
            Err(failed) if failed.is(ErrorCode::NO_AUTH) => {
                self.set_blocker(claim, own, Blocker::Unknown);
                Ok(Some(Answer::Waiting(Hint::ask_in(UNWATCHED_POLL))))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Records what a waiting claim waits for and returns the previous value. `None` if the claim does not wait.
    pub(crate) fn set_blocker(&self, claim: &Claim, own: &OwnNodes, blocker: Blocker) -> Option<Blocker> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(claim.id)?;
        let State::Waiting { blocker: previous, .. } = &entry.state else { return None };
        let previous = previous.clone();
        entry.waits(own.clone(), blocker, now);
        Some(previous)
    }

    /// The answer for a claim that waits, by its state in the claim table.
    pub(crate) fn waiting_answer(&self, claim: &Claim) -> Answer {
        let mut claims = self.claims();
        match claims.get(claim.id).map(|entry| &entry.state) {
            Some(State::Waiting { blocker, .. }) => {
                let ask_in = blocker.path().is_none().then_some(UNWATCHED_POLL);
                Answer::Waiting(Hint { ask_in, ahead: blocker.ahead(), ..plain::hint(blocker.is_endless()) })
            }
            Some(State::Gone) | None => Answer::Gone,
            _ => Answer::Waiting(Hint::ask_in(UNWATCHED_POLL)),
        }
    }

    /// Records that the claim holds and returns the answer. A release that arrived meanwhile takes precedence.
    pub(crate) fn record_hold(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: OwnNodes,
    ) -> Result<Answer, Failed> {
        let now = self.now();
        let Some(ttl) = context.session.state.remaining(now).map(|remaining| remaining.min(claim.ttl)) else {
            return Err(
                if context.session.state.has_ended() { session_ended() } else { unconfirmed() }.into()
            );
        };
        let mut claims = self.claims();
        if let Some(answer) = claims.answer_without_request(claim.id) {
            return Ok(answer);
        }
        let Some(tokens) = claims.get(claim.id).map(|entry| entry.tokens) else { return Ok(Answer::Gone) };
        let grant = self.config.token_blocks.grant(context.lineage, own.czxid, tokens, ttl)?;
        claims.hold(claim.id, own, true, (now, now.after(ttl)));
        drop(claims);
        self.wake_maintenance.notify_one();
        Ok(Answer::Held(grant))
    }

    /// The error if the claim's directory is in use as another kind of lock, or with another limit.
    pub(crate) async fn kind_mismatch(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        queue: &[String],
    ) -> Result<Option<EngineError>, Failed> {
        if let Some(limit) = claim.mode.limit() {
            return self.kind_mismatch_of_permits(claim, context, limit, queue).await;
        }
        // With `path=`, the directory can contain other directories with these names.
        let may_be_semaphore = self.config.only_name().is_none();
        for name in [PERMITS_QUEUE, PERMITS].into_iter().filter(|_| may_be_semaphore) {
            if queue.iter().any(|child| child == name)
                && !children(&context.conn, &context.dir.child_path(name)).await?.is_empty()
            {
                return Ok(Some(kind_mismatch_error(claim, "a semaphore")));
            }
        }
        Ok(None)
    }

    /// Searches for the node that an unanswered change may have created. The server of this connection has by now
    /// applied everything that a quorum agreed upon before the connection was opened. A node that is created later is
    /// deleted by `delete_strays` or after the release.
    pub(crate) async fn settle(&self, claim: &Claim, context: &ClaimContext) -> Result<(), Failed> {
        if claim.mode.limit().is_some() && self.find_permits(claim, context).await? {
            return Ok(());
        }
        let own = self.find_own_node(claim.id, context, &context.dir.queue_of(claim.mode)).await?;
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            entry.data.search_done();
            match own {
                Some(own) if entry.state == State::Made => entry.waits(own, Blocker::Unknown, now),
                Some(_) => {}
                None if matches!(entry.state, State::Waiting { .. }) => entry.state = State::Gone,
                None => {}
            }
        }
        Ok(())
    }

    /// The claim's node in this directory, if it belongs to this session.
    async fn find_own_node(
        &self,
        id: ClaimId,
        context: &ClaimContext,
        path: &str,
    ) -> Result<Option<OwnNodes>, Failed> {
        for path in self.nodes_of(&context.conn, path, id).await? {
            match context.conn.send(&Exists { path: &path }).answer().await {
                // A node of an ended session is about to be deleted.
                Ok(stat) if stat.ephemeral_owner == context.session.state.id() => {
                    return Ok(Some(OwnNodes::single(path, stat.czxid)));
                }
                Ok(_) => {}
                Err(failed) if failed.is(ErrorCode::NO_NODE) => {}
                Err(failed) => return Err(failed),
            }
        }
        Ok(None)
    }

    /// The paths of all nodes in this directory that were created for the claim.
    pub(crate) async fn nodes_of(
        &self,
        conn: &crate::conn::Conn,
        path: &str,
        id: ClaimId,
    ) -> Result<Vec<String>, Failed> {
        let mut names = children(conn, path).await?;
        if self.is_plain() {
            names = self.with_claim_in_data(conn, path, names, id).await?;
        } else {
            names.retain(|name| keys::belongs_to(name, id));
        }
        names.sort();
        Ok(names.iter().map(|name| format!("{path}/{name}")).collect())
    }
}

/// The error for a name that is in use as another kind of lock.
pub(crate) fn kind_mismatch_error(claim: &Claim, kind_in_use: &str) -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use now as {kind_in_use} and cannot be claimed as {}: one name is one kind of lock with one limit",
            claim.mode
        ),
    )
}

/// The error for a hold on a session that no quorum confirmed in time.
fn unconfirmed() -> EngineError {
    EngineError::new(Fault::Unknown, "no quorum confirmed the session in time")
}

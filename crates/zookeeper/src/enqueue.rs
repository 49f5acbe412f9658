//! The position of a claim in its queue, and what follows from it.
//!
//! Nodes ahead of a claim can only disappear, so a stale answer can delay a grant and never cause a wrong one. No
//! answer proves that the claim's own node exists after the answer; the validity of the session does.

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Hint, Mode, Notification, lock_state::MAX_WAITERS,
};

use crate::{
    claim::{Attempt, ClaimContext, children},
    claims::{Blocker, Own, State},
    client::{Client, grant},
    error::Failed,
    keys::{self, PERMITS, PERMITS_QUEUE},
    lock_of,
    position::{position, refuses},
    record::is_broken,
    runtime,
    session::session_ended,
    watches::{PendingWatch, Target},
    wire::{Children, Code, Data, Exists},
};

/// How often the queue is read again because the node ahead disappeared before it was watched.
const TRIES: u32 = 8;
/// How often a try reads what became of the tries ahead of it, for a second in all, and the first pause between two
/// reads. A try that takes longer hangs, and refuses others as a waiter does: it may become the head of the queue at
/// any time, and hold.
const TRY_LOOKS: u32 = 10;
const FIRST_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// The poll interval of a claim that may not watch the node ahead of it.
const UNWATCHED_POLL: std::time::Duration = std::time::Duration::from_millis(250);

impl Client {
    /// Decides by the position of the claim in its queue: it holds, is refused, or watches the node that it waits for.
    /// A `new` claim also checks whether the name is in use as another kind of lock. Earlier claims do not check that,
    /// because a later claim must not refuse them.
    pub(crate) async fn evaluate_position(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        mut children: Vec<String>,
        new: bool,
    ) -> Result<Attempt, Failed> {
        let queue = context.dir.queue_of(claim.mode);
        for look in 0..if claim.may_queue { TRIES } else { TRY_LOOKS + TRIES } {
            self.delete_strays(claim, context, own, &mut children).await?;
            let nodes = keys::queue_nodes(&children);
            let Some(position) = position(&nodes, own.name(), claim.mode) else {
                return Ok(Attempt::Answer(self.give_up(claim)));
            };
            if new && let Some(clash) = self.clash(claim, context, &children).await? {
                self.take_back(claim, context, own).await?;
                return Err(clash.into());
            }
            if position.used_up {
                self.take_back(claim, context, own).await?;
                lock_of(&self.used_up).insert(queue);
                return Ok(Attempt::Again);
            }
            let Some((before, sole)) = position.before else {
                return match claim.mode {
                    Mode::Permits { count, limit } => {
                        self.take_permits(claim, context, own, (count, limit)).await
                    }
                    _ => self.record_hold(claim, context, own.clone()).map(Attempt::Answer),
                };
            };
            if !claim.may_queue {
                let at = nodes.iter().position(|node| node.name == own.name()).unwrap_or(nodes.len());
                let hangs = Some(&before).filter(|_| look >= TRY_LOOKS);
                match refuses(&nodes[..at], claim.mode).map(|other| &other.name).or(hangs) {
                    Some(other) => {
                        let before = format!("{queue}/{other}");
                        if let Some(taken) = self.take_back_behind(claim, context, own, before).await? {
                            return Ok(Attempt::Answer(taken));
                        }
                    }
                    None => runtime::sleep(FIRST_PAUSE * 2_u32.pow(look)).await,
                }
                children = self::children(&context.conn, &queue).await?;
                continue;
            }
            if position.ahead as usize > MAX_WAITERS {
                self.take_back(claim, context, own).await?;
                return Err(EngineError::new(
                    Fault::Refused,
                    "the queue is full: too many claims wait already",
                )
                .into());
            }
            let sole = sole && claim.mode.limit().is_none() && !keys::may_be_followed(&before);
            let path = format!("{queue}/{before}");
            match self
                .watch_blocker(claim, context, own, Blocker::Node { path, sole, ahead: position.ahead })
                .await?
            {
                Some(answer) => return Ok(Attempt::Answer(answer)),
                None if sole => {
                    return self.record_hold(claim, context, own.clone()).map(Attempt::Answer);
                }
                None => children = self::children(&context.conn, &queue).await?,
            }
        }
        if !claim.may_queue {
            self.take_back(claim, context, own).await?;
            return Ok(Attempt::Answer(Answer::Taken(Hint::default())));
        }
        // No watch is set for the claim now.
        self.mailbox.push(Notification::Recheck { name: claim.name.clone(), id: claim.id });
        Ok(Attempt::Answer(self.waiting_answer(claim)))
    }

    /// Deletes other nodes of the claim. A request that was given up may have been applied all the same, and the claim
    /// would wait for its own node.
    async fn delete_strays(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        children: &mut Vec<String>,
    ) -> Result<(), Failed> {
        let queue = context.dir.queue_of(claim.mode);
        let is_stray = |name: &mut String| keys::belongs_to(name, claim.id) && own.name() != name.as_str();
        let strays: Vec<String> =
            children.extract_if(.., is_stray).map(|name| format!("{queue}/{name}")).collect();
        if strays.is_empty() {
            return Ok(());
        }
        self.delete_all(&context.session, &context.conn, &strays).await.map(drop)
    }

    /// Watches what the claim waits for. `None` if that does not exist any more.
    async fn watch_blocker(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        before: Blocker,
    ) -> Result<Option<Answer>, Failed> {
        let Some(path) = before.path().map(str::to_owned) else { return Ok(None) };
        let target = Target::Blocker(claim.id);
        let last = match self.set_blocker(claim, own, before) {
            Some(last) => last,
            None => return Ok(Some(self.waiting_answer(claim))),
        };
        if let Some(last) = last.path().filter(|last| *last != path) {
            context.conn.watches.stop_watching(last, target);
        }
        let pending_watch = PendingWatch::new(&context.conn.watches, &path, target);
        // A watch on the children, unlike one on the data, does not report changes of the data.
        match context.conn.send(&Children { path: &path, watch: true }).answer().await {
            Ok(_) => {
                pending_watch.confirm();
                Ok(Some(self.waiting_answer(claim)))
            }
            Err(failed) if failed.is(Code::NO_NODE) => Ok(None),
            // The node is not readable with this login. The list of the directory shows when it is gone.
            Err(failed) if failed.is(Code::NO_AUTH) => {
                self.set_blocker(claim, own, Blocker::Unknown);
                Ok(Some(Answer::Waiting(Hint { ask_in: Some(UNWATCHED_POLL), ..Hint::default() })))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Records what a waiting claim waits for and returns the previous value. `None` if the claim does not wait.
    pub(crate) fn set_blocker(&self, claim: &Claim, own: &Own, before: Blocker) -> Option<Blocker> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(claim.id)?;
        let State::Waiting { before: last, .. } = &entry.state else { return None };
        let last = last.clone();
        entry.waits(own.clone(), before, now);
        Some(last)
    }

    pub(crate) fn waiting_answer(&self, claim: &Claim) -> Answer {
        let mut claims = self.claims();
        match claims.get(claim.id).map(|entry| &entry.state) {
            Some(State::Waiting { before, .. }) => {
                Answer::Waiting(Hint { ahead: before.ahead(), ..Hint::default() })
            }
            Some(State::Gone) | None => Answer::Gone,
            _ => Answer::Waiting(Hint::default()),
        }
    }

    pub(crate) async fn ask_waiting(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        before: &Blocker,
    ) -> Result<Attempt, Failed> {
        if let Blocker::Node { path, .. } = before
            && context.conn.watches.has(path, Target::Blocker(claim.id))
        {
            let (own_there, before_there) =
                (context.conn.send(&Exists { path: &own.path }), context.conn.send(&Exists { path }));
            if own_there.answer().await.is_err_and(|failed| failed.is(Code::NO_NODE)) {
                return Ok(Attempt::Answer(self.give_up(claim)));
            }
            match before_there.answer().await {
                Ok(_) => {
                    let now = self.now();
                    if let Some(entry) = self.claims().get(claim.id) {
                        entry.asked_again(now);
                    }
                    return Ok(Attempt::Answer(self.waiting_answer(claim)));
                }
                Err(failed) if failed.is(Code::NO_NODE) => {}
                Err(failed) => return Err(failed),
            }
        }
        let children = children(&context.conn, &context.dir.queue_of(claim.mode)).await?;
        self.evaluate_position(claim, context, own, children, false).await
    }

    pub(crate) async fn ask_held(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: Own,
    ) -> Result<Attempt, Failed> {
        match context.conn.send(&Data { path: &own.path, watch: false }).answer().await {
            Ok((data, _)) if is_broken(&data) => Ok(Attempt::Answer(self.give_up(claim))),
            Ok(_) => self.record_hold(claim, context, own).map(Attempt::Answer),
            Err(failed) if failed.is(Code::NO_NODE) => Ok(Attempt::Answer(self.give_up(claim))),
            Err(failed) => Err(failed),
        }
    }

    /// Records that the claim holds and returns the answer. A release that arrived meanwhile takes precedence.
    pub(crate) fn record_hold(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: Own,
    ) -> Result<Answer, Failed> {
        let now = self.now();
        let Some(ttl) = context.session.facts.remaining(now).map(|left| left.min(claim.ttl)) else {
            return Err(if context.session.facts.is_gone() { session_ended() } else { unconfirmed() }.into());
        };
        let mut claims = self.claims();
        if let Some(closed) = claims.closed(claim.id) {
            return Ok(closed);
        }
        let token = own.czxid;
        claims.hold(claim.id, own, true, (now, now.after(ttl)));
        drop(claims);
        self.sooner.notify_one();
        Ok(Answer::Held(grant(context.lineage, token, ttl)?))
    }

    /// The error if the claim's directory is in use as another kind of lock, or with another limit.
    pub(crate) async fn clash(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        queue: &[String],
    ) -> Result<Option<EngineError>, Failed> {
        if let Some(limit) = claim.mode.limit() {
            return self.clash_of_permits(claim, context, limit, queue).await;
        }
        for name in [PERMITS_QUEUE, PERMITS] {
            if queue.iter().any(|child| child == name)
                && !children(&context.conn, &context.dir.below(name)).await?.is_empty()
            {
                return Ok(Some(in_use(claim, "a semaphore")));
            }
        }
        Ok(None)
    }

    /// Looks for the node that an unanswered change may have created. Everything that a quorum agreed upon before this
    /// connection is applied by now. A node that is created later is deleted as a stray or after the release.
    pub(crate) async fn settle(&self, claim: &Claim, context: &ClaimContext) -> Result<(), Failed> {
        if claim.mode.limit().is_some() && self.find_permits(claim, context).await? {
            return Ok(());
        }
        let own = self.find(claim.id, context, &context.dir.queue_of(claim.mode)).await?;
        let now = self.now();
        if let Some(entry) = self.claims().get(claim.id) {
            entry.data.searched();
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
    async fn find(&self, id: ClaimId, context: &ClaimContext, path: &str) -> Result<Option<Own>, Failed> {
        for path in self.nodes_of(&context.conn, path, id).await? {
            match context.conn.send(&Exists { path: &path }).answer().await {
                // A node of an ended session is about to be deleted.
                Ok(stat) if stat.owner == context.session.facts.id() => {
                    return Ok(Some(Own::one(path, stat.czxid)));
                }
                Ok(_) => {}
                Err(failed) if failed.is(Code::NO_NODE) => {}
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
        names.retain(|name| keys::belongs_to(name, id));
        names.sort();
        Ok(names.iter().map(|name| format!("{path}/{name}")).collect())
    }
}

pub(crate) fn in_use(claim: &Claim, as_what: &str) -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use now as {as_what} and cannot be claimed as {}: one name is one kind of lock with one limit",
            claim.mode
        ),
    )
}

fn unconfirmed() -> EngineError {
    EngineError::new(Fault::Unknown, "no quorum confirmed the session in time")
}

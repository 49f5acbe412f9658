//! Permits, as in Curator's `InterProcessSemaphoreV2`: claims of permits have a queue of their own. The head of this
//! queue acquires all permits of its claim in one step when enough are free, and leaves the queue in the same step
//! (<https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks/InterProcessSemaphoreV2.java>).
//! So only the head of the queue adds permits. Curator adds its own permit before it checks whether a permit is free,
//! and stays in the queue until one is free.

use leasehold_core::{Answer, Claim, EngineError, Hint};

use crate::{
    claim::{ClaimContext, StepResult, children},
    claims::{Blocker, OwnNodes, State},
    client::Client,
    enqueue::kind_mismatch_error,
    error::{Failed, multi_outcome},
    keys::{self, Node},
    record::{limit_text, read_limit},
    watches::{PendingWatch, WatchTarget},
    wire::{
        ANY_VERSION, Create, Delete, ErrorCode, Exists, GetChildren, GetData, Multi, MultiOp, NodeKind,
        SetData,
    },
};

impl Client {
    /// Creates the directories of a semaphore in the directory of its name.
    pub(crate) async fn make_semaphore(&self, context: &ClaimContext, limit: u32) -> Result<(), Failed> {
        self.create_dirs(&context.conn, &context.dir.permits_queue(), NodeKind::Container, Vec::new())
            .await?;
        self.create_dirs(&context.conn, &context.dir.permits(), NodeKind::Container, limit_text(limit)).await
    }

    /// Acquires the permits of the claim, which is the head of the queue, if enough are free. Otherwise a try is
    /// refused, and a claim that may wait watches the permits that are held.
    pub(crate) async fn take_permits(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        (count, limit): (u32, u32),
    ) -> Result<StepResult, Failed> {
        let permits = context.dir.permits();
        let pending_watch =
            PendingWatch::new(&context.conn.watches, &permits, WatchTarget::Blocker(claim.id));
        // The blocker is recorded and the watch prepared before the permits are read, so that no event is lost.
        self.set_blocker(claim, own, Blocker::FreePermits { path: permits.clone() });
        let held_permits =
            match context.conn.send(&GetChildren { path: &permits, watch: claim.may_queue }).answer().await {
                Ok(held_permits) => held_permits.len(),
                Err(failed) if failed.is(ErrorCode::NO_NODE) => {
                    self.make_semaphore(context, limit).await?;
                    return Ok(StepResult::Again);
                }
                Err(failed) => return Err(failed),
            };
        if held_permits + count as usize > limit as usize {
            if claim.may_queue {
                pending_watch.confirm();
                return Ok(StepResult::Answer(self.waiting_answer(claim)));
            }
            self.withdraw(claim, context, own).await?;
            return Ok(StepResult::Answer(Answer::Taken(Hint::default())));
        }
        drop(pending_watch);
        let record = self.record(claim, context);
        let paths: Vec<String> = (0..count).map(|number| context.dir.permit(claim.id, number)).collect();
        let permit = |path: &String| {
            let (path, data) = (path.clone(), record.text());
            MultiOp::Create(Create { path, data, acl: self.acl.clone(), kind: NodeKind::Ephemeral })
        };
        let mut steps = vec![MultiOp::Delete(Delete { path: own.path.clone(), version: ANY_VERSION })];
        steps.extend(paths.iter().map(permit));
        self.set_unsettled(claim, true);
        let sent = self.now();
        let (outcome, first_permit) =
            (context.conn.send(&Multi(steps)), context.conn.send(&Exists { path: &paths[0] }));
        let outcome = multi_outcome(outcome.answer().await);
        if !matches!(outcome, Ok(Ok(()))) && !outcome.as_ref().is_err_and(Failed::is_unknown) {
            self.set_unsettled(claim, false);
        }
        match outcome? {
            Ok(()) => {
                context.session.state.record_answer(sent, self.now());
                let token = first_permit.answer().await?.czxid;
                let own = OwnNodes::permits(paths, token).ok_or(Failed::Unreadable)?;
                let answer = self.record_hold(claim, context, own)?;
                // From now on the nodes of its permits are the nodes of the claim.
                self.set_unsettled(claim, false);
                Ok(StepResult::Answer(answer))
            }
            Err((0, ErrorCode::NO_NODE)) => Ok(StepResult::Answer(self.give_up(claim))),
            Err((_, ErrorCode::NO_NODE)) => {
                self.make_semaphore(context, limit).await?;
                Ok(StepResult::Again)
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }

    /// Whether an unanswered change gave the claim its permits. If so, records the hold.
    pub(crate) async fn find_permits(&self, claim: &Claim, context: &ClaimContext) -> Result<bool, Failed> {
        let paths = self.nodes_of(&context.conn, &context.dir.permits(), claim.id).await?;
        let Some(mut own) = OwnNodes::permits(paths, 0) else { return Ok(false) };
        let stat = match context.conn.send(&Exists { path: &own.path }).answer().await {
            Err(failed) if failed.is(ErrorCode::NO_NODE) => return Ok(false),
            stat => stat?,
        };
        if stat.ephemeral_owner != context.session.state.id() {
            return Ok(false);
        }
        own.czxid = stat.czxid;
        let now = self.now();
        let until = now.after(context.session.state.remaining(now).unwrap_or_default());
        let mut claims = self.claims();
        if let Some(entry) = claims.get(claim.id) {
            entry.data.search_done();
            if matches!(entry.state, State::Made | State::Waiting { .. }) {
                claims.hold(claim.id, own, true, (now, until));
            }
        }
        Ok(true)
    }

    /// The error if the name of the claim, whose queue is `queue`, is in use as another kind of lock or with another
    /// limit. If no other claim holds or waits, there is no error, and the limit of this claim becomes the limit of the
    /// name.
    pub(crate) async fn kind_mismatch_of_permits(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        limit: u32,
        queue: &[String],
    ) -> Result<Option<EngineError>, Failed> {
        let permits = context.dir.permits();
        let (siblings, stored_limit, permit_list) = (
            context.conn.send(&GetChildren { path: context.dir.path(), watch: false }),
            context.conn.send(&GetData { path: &permits, watch: false }),
            context.conn.send(&GetChildren { path: &permits, watch: false }),
        );
        if siblings.answer().await?.iter().any(|name| Node::read(name).is_some()) {
            return Ok(Some(kind_mismatch_error(claim, "a mutex or read-write lock")));
        }
        let (data, stat) = match stored_limit.answer().await {
            Err(failed) if failed.is(ErrorCode::NO_NODE) => return Ok(None),
            stored_limit => stored_limit?,
        };
        let has_other_claims =
            permit_list.answer().await?.iter().any(|name| !keys::belongs_to(name, claim.id))
                || queue.iter().any(|name| !keys::belongs_to(name, claim.id));
        match read_limit(&data) {
            Some(stored_limit) if stored_limit == limit => return Ok(None),
            Some(stored_limit) if has_other_claims => {
                return Ok(Some(kind_mismatch_error(claim, &format!("a semaphore of {stored_limit}"))));
            }
            _ => {}
        }
        let set_limit = SetData { path: permits, data: limit_text(limit), version: stat.version };
        match self.apply_changes(&context.session, &context.conn, vec![MultiOp::SetData(set_limit)]).await? {
            // The login may lack the right to write; then the limit is not stored, and each program uses its own limit.
            Ok(_) | Err((_, ErrorCode::NO_AUTH | ErrorCode::NO_NODE)) => Ok(None),
            // Another client wrote the limit at the same time.
            Err((_, ErrorCode::BAD_VERSION)) => {
                let queue = children(&context.conn, &context.dir.permits_queue()).await?;
                Box::pin(self.kind_mismatch_of_permits(claim, context, limit, &queue)).await
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }
}

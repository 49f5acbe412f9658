//! Permits, as in Curator's `InterProcessSemaphoreV2`: claims of permits have a queue of their own. Its head takes all
//! its permits in one step when enough are free, and leaves the queue
//! (<https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks/InterProcessSemaphoreV2.java>).
//! So only the head of the queue adds permits. Curator adds its own permit before it checks whether one is free, and
//! stays in the queue until then.

use leasehold_core::{Answer, Claim, EngineError, Hint};

use crate::{
    claim::{Attempt, ClaimContext, children},
    claims::{Blocker, Own, State},
    client::Client,
    enqueue::in_use,
    error::{Failed, multi_outcome},
    keys::{self, Node},
    record::{limit as limit_of, limit_text},
    watches::{PendingWatch, Target},
    wire::{Children, Code, Create, Data, Delete, Exists, Kind, Multi, MultiOp, SetData},
};

impl Client {
    /// Creates the directories of a semaphore in the directory of its name.
    pub(crate) async fn make_semaphore(&self, context: &ClaimContext, limit: u32) -> Result<(), Failed> {
        self.make(&context.conn, &context.dir.permits_queue(), Kind::Container, Vec::new()).await?;
        self.make(&context.conn, &context.dir.permits(), Kind::Container, limit_text(limit)).await
    }

    /// The claim is the head of the queue: takes its permits if enough are free, otherwise watches those that are held.
    pub(crate) async fn take_permits(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &Own,
        (count, limit): (u32, u32),
    ) -> Result<Attempt, Failed> {
        let permits = context.dir.permits();
        let pending_watch = PendingWatch::new(&context.conn.watches, &permits, Target::Blocker(claim.id));
        // The blocker is recorded and the watch prepared before the permits are read, so that no event is lost.
        self.set_blocker(claim, own, Blocker::FreePermits { path: permits.clone() });
        let taken =
            match context.conn.send(&Children { path: &permits, watch: claim.may_queue }).answer().await {
                Ok(taken) => taken.len(),
                Err(failed) if failed.is(Code::NO_NODE) => {
                    self.make_semaphore(context, limit).await?;
                    return Ok(Attempt::Again);
                }
                Err(failed) => return Err(failed),
            };
        if taken + count as usize > limit as usize {
            if claim.may_queue {
                pending_watch.confirm();
                return Ok(Attempt::Answer(self.waiting_answer(claim)));
            }
            self.take_back(claim, context, own).await?;
            return Ok(Attempt::Answer(Answer::Taken(Hint::default())));
        }
        drop(pending_watch);
        let record = self.record(claim, context);
        let paths: Vec<String> = (0..count).map(|number| context.dir.permit(claim.id, number)).collect();
        let permit = |path: &String| {
            let (path, data) = (path.clone(), record.text());
            MultiOp::Create(Create { path, data, acl: self.acl.clone(), kind: Kind::Ephemeral })
        };
        let mut steps = vec![MultiOp::Delete(Delete { path: own.path.clone(), version: -1 })];
        steps.extend(paths.iter().map(permit));
        self.set_unsettled(claim, true);
        let sent = self.now();
        let (outcome, made) =
            (context.conn.send(&Multi(steps)), context.conn.send(&Exists { path: &paths[0] }));
        let outcome = multi_outcome(outcome.answer().await);
        if !matches!(outcome, Ok(Ok(()))) && !outcome.as_ref().is_err_and(Failed::is_unknown) {
            self.set_unsettled(claim, false);
        }
        match outcome? {
            Ok(()) => {
                context.session.facts.confirmed(sent, self.now());
                let token = made.answer().await?.czxid;
                let own = Own::permits(paths, token).ok_or(Failed::Unreadable)?;
                let answer = self.record_hold(claim, context, own)?;
                // From now on the claim is known by its permits.
                self.set_unsettled(claim, false);
                Ok(Attempt::Answer(answer))
            }
            Err((0, Code::NO_NODE)) => Ok(Attempt::Answer(self.give_up(claim))),
            Err((_, Code::NO_NODE)) => {
                self.make_semaphore(context, limit).await?;
                Ok(Attempt::Again)
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }

    /// Whether an unanswered change gave the claim its permits.
    pub(crate) async fn find_permits(&self, claim: &Claim, context: &ClaimContext) -> Result<bool, Failed> {
        let paths = self.nodes_of(&context.conn, &context.dir.permits(), claim.id).await?;
        let Some(mut own) = Own::permits(paths, 0) else { return Ok(false) };
        let stat = match context.conn.send(&Exists { path: &own.path }).answer().await {
            Err(failed) if failed.is(Code::NO_NODE) => return Ok(false),
            stat => stat?,
        };
        if stat.owner != context.session.facts.id() {
            return Ok(false);
        }
        own.czxid = stat.czxid;
        let now = self.now();
        let until = now.after(context.session.facts.remaining(now).unwrap_or_default());
        let mut claims = self.claims();
        if let Some(entry) = claims.get(claim.id) {
            entry.data.searched();
            if matches!(entry.state, State::Made | State::Waiting { .. }) {
                claims.hold(claim.id, own, true, (now, until));
            }
        }
        Ok(true)
    }

    /// The error if the name of the claim, whose queue is `queue`, is in use as another kind of lock or with another
    /// limit. If no other claim is there, the claim's limit counts from now on.
    pub(crate) async fn clash_of_permits(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        limit: u32,
        queue: &[String],
    ) -> Result<Option<EngineError>, Failed> {
        let permits = context.dir.permits();
        let (siblings, written, taken) = (
            context.conn.send(&Children { path: context.dir.path(), watch: false }),
            context.conn.send(&Data { path: &permits, watch: false }),
            context.conn.send(&Children { path: &permits, watch: false }),
        );
        if siblings.answer().await?.iter().any(|name| Node::read(name).is_some()) {
            return Ok(Some(in_use(claim, "a mutex or read-write lock")));
        }
        let (data, stat) = match written.answer().await {
            Err(failed) if failed.is(Code::NO_NODE) => return Ok(None),
            written => written?,
        };
        let others = taken.answer().await?.iter().any(|name| !keys::belongs_to(name, claim.id))
            || queue.iter().any(|name| !keys::belongs_to(name, claim.id));
        match limit_of(&data) {
            Some(same) if same == limit => return Ok(None),
            Some(other) if others => return Ok(Some(in_use(claim, &format!("a semaphore of {other}")))),
            _ => {}
        }
        let set = SetData { path: permits, data: limit_text(limit), version: stat.version };
        match self.change(&context.session, &context.conn, vec![MultiOp::SetData(set)]).await? {
            // The login may lack the right to write; then each program has to bring the limit itself.
            Ok(_) | Err((_, Code::NO_AUTH | Code::NO_NODE)) => Ok(None),
            // Another client wrote the limit at the same time.
            Err((_, Code::BAD_VERSION)) => {
                let queue = children(&context.conn, &context.dir.permits_queue()).await?;
                Box::pin(self.clash_of_permits(claim, context, limit, &queue)).await
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }
}

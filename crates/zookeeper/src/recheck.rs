//! Further questions about a claim that has a node: whether it still waits or still holds.

use leasehold_core::{Claim, ClaimId};

use crate::{
    claim::{ClaimContext, StepResult, none_if_absent},
    claims::{Blocker, OwnNodes},
    client::Client,
    conn::Conn,
    enqueue::ClaimAge,
    error::Failed,
    latch::is_broken,
    plain,
    watches::WatchTarget,
    wire::{ErrorCode, Exists, GetChildren, GetData, Stat},
};

impl Client {
    /// Asks for the position of a claim that waits.
    pub(crate) async fn recheck_waiting(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
        blocker: &Blocker,
    ) -> Result<StepResult, Failed> {
        if let Blocker::Node { path, persistent, .. } = blocker
            && context.conn.watches.has(path, WatchTarget::Blocker(claim.id))
        {
            let (own_exists, blocker_exists) =
                (context.conn.send(&Exists { path: &own.path }), context.conn.send(&Exists { path }));
            let persistent_exists = persistent.as_deref().map(|path| context.conn.send(&Exists { path }));
            if !is_own(own, own_exists.answer().await)? {
                return Ok(StepResult::Answer(self.give_up(claim)));
            }
            let blocker_exists = match blocker_exists.answer().await {
                Err(failed) if failed.is(ErrorCode::NO_NODE) => None,
                blocker_exists => Some(blocker_exists?),
            };
            // If the persistent node is gone, or there is one that was not the first node before, the queue tells which
            // node is the obstacle now.
            let is_obstacle_known = match persistent_exists {
                Some(exists) => plain::is_persistent(exists.answer().await)?,
                None => !blocker_exists.is_some_and(|stat| plain::can_block_forever(path, &stat)),
            };
            if blocker_exists.is_some() && is_obstacle_known {
                let now = self.now();
                if let Some(entry) = self.claims().get(claim.id) {
                    entry.asked_again(now);
                }
                return Ok(StepResult::Answer(self.waiting_answer(claim)));
            }
        }
        let children = self.queue_of_own(claim, context, own).await?;
        self.evaluate_position(claim, context, own, children, ClaimAge::Earlier).await
    }

    /// The children of the queue of a claim that has a node; no children if that node is gone. In the plain layout, a
    /// node is not recognised by its name: another program's node possibly has that name by now.
    pub(crate) async fn queue_of_own(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: &OwnNodes,
    ) -> Result<Vec<String>, Failed> {
        let queue = context.dir.queue_of(claim.mode);
        let listed = context.conn.send(&GetChildren { path: &queue, watch: false });
        // A node that still exists after the list was read is the node in the list.
        let own_exists = self.is_plain().then(|| context.conn.send(&Exists { path: &own.path }));
        let children = none_if_absent(listed.answer().await)?;
        let is_there = match own_exists {
            Some(exists) => is_own(own, exists.answer().await)?,
            None => true,
        };
        Ok(if is_there { children } else { Vec::new() })
    }

    /// Whether the first node of a claim still exists.
    pub(crate) async fn has_node(&self, conn: &Conn, own: &OwnNodes) -> Result<bool, Failed> {
        is_own(own, conn.send(&Exists { path: &own.path }).answer().await)
    }

    /// Records that the node of a claim was possibly deleted.
    pub(crate) fn node_may_be_gone(&self, id: ClaimId) {
        if let Some(entry) = self.claims().get(id) {
            entry.data.node_may_be_gone = true;
        }
    }

    /// Checks whether a hold still exists and is not broken.
    pub(crate) async fn recheck_held(
        &self,
        claim: &Claim,
        context: &ClaimContext,
        own: OwnNodes,
    ) -> Result<StepResult, Failed> {
        match context.conn.send(&GetData { path: &own.path, watch: false }).answer().await {
            Ok((data, stat)) if is_broken(own.name(), &data) || !own.is_first_node(&stat) => {
                Ok(StepResult::Answer(self.give_up(claim)))
            }
            Ok(_) => self.record_hold(claim, context, own).map(StepResult::Answer),
            Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(StepResult::Answer(self.give_up(claim))),
            Err(failed) => Err(failed),
        }
    }
}

/// Whether the answer to `Exists` for the path of a claim's first node shows that node.
fn is_own(own: &OwnNodes, exists: Result<Stat, Failed>) -> Result<bool, Failed> {
    match exists {
        Ok(stat) => Ok(own.is_first_node(&stat)),
        Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(false),
        Err(failed) => Err(failed),
    }
}

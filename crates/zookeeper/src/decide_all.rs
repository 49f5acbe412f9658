//! The decision on a set whose nodes exist: all claims hold, or all nodes are deleted in one step.

use leasehold_core::{AllAnswer, Answer, Claim, Hint};

use crate::{
    claim::ClaimContext,
    claims::OwnNodes,
    client::Client,
    create_all::{list_all, queues_of},
    enqueue::{FIRST_PAUSE, MAX_READS, MAX_TRY_READS},
    error::Failed,
    keys, lock_mutex, plain,
    position::{position, refusing_node},
    runtime,
    wire::{ANY_VERSION, Delete, ErrorCode, MultiOp},
};

/// What the queues say about a set.
enum Verdict {
    /// No node is ahead of any claim.
    Free,
    /// Only tries that are not decided yet are ahead.
    Undecided,
    /// The node at `ahead` refuses the claim with this index.
    Refused { index: usize, ahead: String, hint: Hint },
    /// The set cannot be granted, whatever is ahead.
    Failed(AllAnswer),
}

/// How the nodes of a set that is not granted were deleted.
enum Withdrawn {
    Completely,
    /// Nothing was deleted: the node ahead is not readable with this login, or an own node is gone.
    Perhaps,
}

impl Client {
    /// Decides by the positions of the claims in their queues, whose nodes are `children`.
    pub(crate) async fn decide_all(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        own_nodes: &[OwnNodes],
        mut children: Vec<Vec<String>>,
    ) -> Result<AllAnswer, Failed> {
        for reads in 0..MAX_TRY_READS + MAX_READS {
            match self.judge_all(claims, contexts, own_nodes, children, reads).await? {
                Verdict::Free => return self.hold_all(claims, contexts, own_nodes).await,
                Verdict::Undecided => runtime::sleep(FIRST_PAUSE * 2_u32.pow(reads)).await,
                Verdict::Refused { index, ahead, hint } => {
                    self.contended_names.add(&claims[index].name);
                    let answer = AllAnswer::Taken { index, hint };
                    match self.withdraw_all_behind(claims, contexts, own_nodes, ahead).await? {
                        Some(Withdrawn::Completely) => return Ok(self.forget_all(claims, answer).await?),
                        Some(Withdrawn::Perhaps) => return Ok(self.end_all(claims, answer).await?),
                        None => {}
                    }
                }
                Verdict::Failed(answer) => return Ok(self.end_all(claims, answer).await?),
            }
            let lists = list_all(&contexts[0].conn, &queues_of(claims, contexts)).await;
            children = lists.into_iter().collect::<Result<_, _>>()?;
        }
        Ok(self.end_all(claims, AllAnswer::Taken { index: 0, hint: Hint::default() }).await?)
    }

    /// What these nodes of the queues say about the set. `reads`: how often the queues were read before.
    async fn judge_all(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        own_nodes: &[OwnNodes],
        children: Vec<Vec<String>>,
        reads: u32,
    ) -> Result<Verdict, Failed> {
        let mut verdict = Verdict::Free;
        for (index, mut children) in children.into_iter().enumerate() {
            let (claim, context, own) = (&claims[index], &contexts[index], &own_nodes[index]);
            self.delete_strays(claim, context, own, &mut children).await?;
            let nodes = keys::queue_nodes(&children);
            let Some(position) = position(&nodes, own.name(), claim.mode) else {
                return Ok(Verdict::Failed(AllAnswer::Taken { index, hint: Hint::default() }));
            };
            if let Some(error) = self.kind_mismatch(claim, context, &children).await? {
                return Ok(Verdict::Failed(AllAnswer::Refused { index, error }));
            }
            let queue = context.dir.queue_of(claim.mode);
            if position.counter_used_up {
                lock_mutex(&self.used_up_queues).insert(queue);
                return Ok(Verdict::Failed(AllAnswer::OneByOne));
            }
            let Some((blocker, _)) = position.blocker else { continue };
            let own_index = nodes.iter().position(|node| node.name == own.name()).unwrap_or(nodes.len());
            let hanging_try = Some(&blocker).filter(|_| reads >= MAX_TRY_READS);
            let refusing = refusing_node(&nodes[..own_index], claim.mode).map(|node| &node.name);
            let Some(refusing) = refusing.or(hanging_try) else {
                verdict = Verdict::Undecided;
                continue;
            };
            let persistent = self.persistent_node(context, &queue, nodes.first()).await?;
            let hint = plain::hint(persistent.is_some());
            return Ok(Verdict::Refused { index, ahead: format!("{queue}/{refusing}"), hint });
        }
        Ok(verdict)
    }

    /// Records that all claims hold. If a claim has ended meanwhile, all end.
    async fn hold_all(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        own_nodes: &[OwnNodes],
    ) -> Result<AllAnswer, Failed> {
        let mut grants = Vec::with_capacity(claims.len());
        for (index, ((claim, context), own)) in claims.iter().zip(contexts).zip(own_nodes).enumerate() {
            match self.record_hold(claim, context, own.clone())? {
                Answer::Held(grant) => grants.push(grant),
                Answer::Waiting(_) | Answer::Taken(_) | Answer::Gone => {
                    let answer = AllAnswer::Taken { index, hint: Hint::default() };
                    return Ok(self.end_all(claims, answer).await?);
                }
            }
        }
        Ok(AllAnswer::Held(grants))
    }

    /// Deletes the nodes of the set in one step if the node at `ahead` exists. Otherwise deletes nothing and returns
    /// `None`: the set is possibly the first one in all queues now, and other tries are refused on account of it.
    async fn withdraw_all_behind(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        own_nodes: &[OwnNodes],
        ahead: String,
    ) -> Result<Option<Withdrawn>, Failed> {
        let delete = |path| MultiOp::Delete(Delete { path, version: ANY_VERSION });
        let deletions = own_nodes.iter().flat_map(OwnNodes::paths).map(delete);
        let check = MultiOp::Check { path: ahead, version: ANY_VERSION };
        claims.iter().for_each(|claim| self.node_may_be_gone(claim.id));
        let steps = std::iter::once(check).chain(deletions).collect();
        Ok(match self.apply_changes(&contexts[0].session, &contexts[0].conn, steps).await? {
            Ok(()) => Some(Withdrawn::Completely),
            Err((0, ErrorCode::NO_NODE)) => None,
            Err(_) => Some(Withdrawn::Perhaps),
        })
    }
}

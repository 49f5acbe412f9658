//! Renewals and releases on a Redlock: of many holds at once, on all nodes, decided by a majority.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{BoxFuture, EngineError, Fault, Hold, Loss, Mode, Name, Release, Released, Renewed};

use super::{
    agreement::validity,
    engine::RedlockEngine,
    node::Node,
    round::{NodeRequest, round},
    words::{ClaimEnd, MissingLock, renew_item},
};
use crate::{
    conn::Conn,
    engine::REQUEST_LIFE,
    keys::Keys,
    outbox::{Items, MAX_BATCH_ITEMS},
    reply::{Reply, unreadable},
    runtime,
    scripts::Script,
};

/// How long renewals and releases wait for the answers of a majority. A long wait costs nothing: the deadline of a hold
/// does not move, and a hanging minority is not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// A renewal waits for at most the ttl divided by this, so that the next renewal is not late.
const RENEWAL_PART: u32 = 4;

/// The answers of one node, one for each item.
type NodeReplies = Vec<Result<String, EngineError>>;

impl RedlockEngine {
    pub(super) async fn renew_now(&self, holds: &[Hold]) -> Vec<Renewed> {
        if holds.is_empty() {
            return Vec::new();
        }
        // If nodes cannot be asked, the counted answers show it.
        let _ = self.ready().await;
        let limit =
            holds.iter().map(|hold| hold.ttl / RENEWAL_PART).min().unwrap_or_default().min(ANSWER_TIMEOUT);
        let quarantine = self.quarantine();
        let mut answers: Vec<_> = holds.iter().map(|_| HoldTally::default()).collect();
        let repairable: Arc<[RepairableHold]> = holds
            .iter()
            .map(|hold| RepairableHold { hold: hold.clone(), is_allowed: AtomicBool::new(false) })
            .collect();
        let requests = self.all_nodes(|node, conn| {
            let items = holds.iter().map(|hold| {
                Some(renew_item(&keys(node, &hold.name)?, hold, MissingLock::Report, quarantine))
            });
            let reply = ask_node(node, conn, Script::RenewNode, items.collect());
            let reply = with_vote(Arc::clone(node), quarantine, reply);
            with_repairs(Arc::clone(node), Arc::clone(conn), Arc::clone(&repairable), reply)
        });
        let (nodes, quorum) = (self.nodes.len(), self.quorum());
        round(requests, limit, |index, reply: NodeReplies| {
            for ((answers, reply), repairable) in answers.iter_mut().zip(reply).zip(&*repairable) {
                answers.add(index, reply);
                repairable.is_allowed.store(answers.with_lock >= quorum, Ordering::Release);
            }
            answers.iter().all(|answers| answers.is_decided(nodes, quorum))
        })
        .await;
        let renewed = holds.iter().zip(&answers).map(|(hold, answers)| {
            if hold.mode != Mode::Exclusive {
                return Renewed::Lost(Loss::Gone);
            }
            let renewed = answers.renewed(nodes, quorum, hold.ttl);
            if matches!(renewed, Renewed::Extended { .. }) {
                for node in answers.lacking_nodes.iter().map(|index| &self.nodes[*index]) {
                    if let Some(conn) = node.conn() {
                        repair(node, conn, hold);
                    }
                }
            }
            renewed
        });
        renewed.collect()
    }

    pub(super) async fn release_now(&self, releases: &[Release]) -> Vec<Released> {
        if releases.is_empty() {
            return Vec::new();
        }
        let _ = self.ready().await;
        releases.iter().for_each(|release| self.set_waiting(release.id, false));
        let ends: Arc<[(Name, ClaimEnd)]> =
            releases.iter().map(|release| (release.name.clone(), claim_end(release))).collect();
        let quarantine = self.quarantine();
        let mut answers: Vec<_> = releases.iter().map(|_| HoldTally::default()).collect();
        let requests = self.all_nodes(|node, conn| {
            let (now, until) = (self.clock.now(), self.clock.now().after(REQUEST_LIFE));
            let items = ends.iter().map(|(name, claim_end)| {
                let tombstone = node.in_flight.release(claim_end.id, conn.number, now, until);
                Some(claim_end.item(&keys(node, name)?, tombstone, quarantine))
            });
            let reply = ask_node(node, conn, Script::ReleaseVote, items.collect());
            or_release_later(Arc::clone(node), Arc::clone(&ends), reply)
        });
        // Nodes that cannot be asked now get the release later.
        let asked: Vec<usize> = requests.iter().map(|request| request.index).collect();
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| !asked.contains(index)) {
            let now = self.clock.now();
            for (name, claim_end) in &*ends {
                // Node 0 records all releases, so that `claim_now` sends no further request of the claim.
                if index == 0 {
                    node.in_flight.release(claim_end.id, 0, now, now.after(REQUEST_LIFE));
                }
                node.release_later(name, *claim_end);
            }
        }
        let (nodes, quorum) = (self.nodes.len(), self.quorum());
        round(requests, ANSWER_TIMEOUT, |index, reply: NodeReplies| {
            for (answers, reply) in answers.iter_mut().zip(reply) {
                answers.add(index, reply);
            }
            answers.iter().all(|answers| answers.is_decided(nodes, quorum) || answers.is_freed(quorum))
        })
        .await;
        answers.iter().map(|answers| answers.released(nodes, quorum)).collect()
    }

    /// Makes one request to each node that can be asked.
    fn all_nodes(
        &self,
        request: impl Fn(&Arc<Node>, &Arc<Conn>) -> BoxFuture<'static, NodeReplies>,
    ) -> Vec<NodeRequest<NodeReplies>> {
        let all = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let conn = node.conn()?;
            Some(NodeRequest { index, node: Arc::clone(node), answer: request(node, &conn), conn })
        });
        all.collect()
    }
}

/// The keys of a name on a node; `None` if no claim can have this name.
fn keys<'a>(node: &'a Node, name: &'a Name) -> Option<Keys<'a>> {
    Keys::of(&node.client.config.prefix, name).ok()
}

/// The end of a claim that this release asks for.
fn claim_end(release: &Release) -> ClaimEnd {
    let token = release.token.map_or(0, |token| token.number);
    ClaimEnd { id: release.id, attempt: None, may_retry: false, token, ended: release.ended }
}

/// Asks a node for all items, in batches. An item of a name that no claim can have is answered "absent".
fn ask_node(
    node: &Arc<Node>,
    conn: &Arc<Conn>,
    script: Script,
    items: Vec<Option<crate::scripts::Item>>,
) -> BoxFuture<'static, NodeReplies> {
    let (node, conn) = (Arc::clone(node), Arc::clone(conn));
    Box::pin(async move {
        let is_sent: Vec<bool> = items.iter().map(Option::is_some).collect();
        let mut batches: Vec<Items> = Vec::new();
        for item in items.into_iter().flatten() {
            match batches.last_mut().filter(|batch| batch.len() < MAX_BATCH_ITEMS) {
                Some(batch) => batch.push(item),
                None => batches.push([item].into()),
            }
        }
        let ask = |items: Items| {
            let (node, conn, count) = (&node, &conn, items.len());
            async move {
                match node.ask(conn, script, items).await {
                    Ok((values, _)) => texts(values, count),
                    Err(error) => (0..count).map(|_| Err(error.without_source())).collect(),
                }
            }
        };
        let mut replies = join_all(batches.into_iter().map(ask)).await.into_iter().flatten();
        let reply = |is_sent: bool| {
            if is_sent {
                replies.next().unwrap_or_else(|| Err(unreadable()))
            } else {
                Ok("absent".to_owned())
            }
        };
        is_sent.into_iter().map(reply).collect()
    })
}

fn texts(values: crate::outbox::Values, count: usize) -> NodeReplies {
    let mut reply = Reply::new(values);
    (0..count).map(|_| reply.text()).collect()
}

/// Changes the answer "extended" of a node that was restarted lately into "new", which does not count as a vote: the
/// node may have forgotten its vote for another claim, and a repaired lock must not give the same vote to a second
/// claim.
fn with_vote(
    node: Arc<Node>,
    quarantine: Duration,
    replies: BoxFuture<'static, NodeReplies>,
) -> BoxFuture<'static, NodeReplies> {
    Box::pin(async move {
        let judged = |reply: String| match reply.strip_prefix("extended ") {
            Some(times) if has_vote(&node, times, quarantine) => "extended".to_owned(),
            Some(_) => "new".to_owned(),
            None => reply,
        };
        replies.await.into_iter().map(|reply| reply.map(judged)).collect()
    })
}

/// Whether the node has been running, and has had its data, for at least the quarantine. `times`: the node's time, and
/// how long it has had its data, both in microseconds.
fn has_vote(node: &Node, times: &str, quarantine: Duration) -> bool {
    let mut words = times.split(' ').map(|word| word.parse::<u64>().ok());
    let (Some(Some(micros)), Some(Some(data_age)), Some((_, started))) =
        (words.next(), words.next(), node.process())
    else {
        return false;
    };
    Duration::from_micros(data_age.min(micros.saturating_sub(started))) >= quarantine
}

/// A hold, and whether its missing locks may be set again: only if a majority of the nodes has the lock.
struct RepairableHold {
    hold: Hold,
    is_allowed: AtomicBool,
}

/// Repairs missing locks on a node whose report comes after those of a majority that has the lock. Earlier reports are
/// handled by `renew_now` when all answers are counted.
fn with_repairs(
    node: Arc<Node>,
    conn: Arc<Conn>,
    repairable: Arc<[RepairableHold]>,
    replies: BoxFuture<'static, NodeReplies>,
) -> BoxFuture<'static, NodeReplies> {
    Box::pin(async move {
        let replies = replies.await;
        for (RepairableHold { hold, is_allowed }, reply) in repairable.iter().zip(&replies) {
            if matches!(reply.as_deref(), Ok("missing" | "young")) && is_allowed.load(Ordering::Acquire) {
                repair(&node, Arc::clone(&conn), hold);
            }
        }
        replies
    })
}

/// Sets a missing lock of a hold again on a node, so that the next failure of another node does not end the hold. Only
/// for a hold whose lock a majority has.
fn repair(node: &Arc<Node>, conn: Arc<Conn>, hold: &Hold) {
    let Some(keys) = keys(node, &hold.name) else { return };
    let (node, item, id) =
        (Arc::clone(node), renew_item(&keys, hold, MissingLock::SetAgain, Duration::ZERO), hold.id);
    runtime::detach(async move {
        let in_flight = node.in_flight.start(id, conn.number, node.client.clock.now());
        if node.in_flight.is_released(id, node.client.clock.now())
            || node.ask(&conn, Script::RenewNode, [item].into()).await.is_ok()
        {
            in_flight.complete();
        }
    });
}

/// Makes the releases that a node does not answer be sent again later.
fn or_release_later(
    node: Arc<Node>,
    ends: Arc<[(Name, ClaimEnd)]>,
    replies: BoxFuture<'static, NodeReplies>,
) -> BoxFuture<'static, NodeReplies> {
    Box::pin(async move {
        let replies = replies.await;
        for ((name, claim_end), reply) in ends.iter().zip(&replies) {
            match reply {
                Ok(_) => node.in_flight.settle(claim_end.id),
                Err(_) => node.release_later(name, *claim_end),
            }
        }
        replies
    })
}

/// Counts the nodes' answers about one hold or release.
#[derive(Default)]
struct HoldTally {
    /// How many nodes had the lock, and extended or released it.
    with_lock: usize,
    /// How many nodes did not have the lock.
    without_lock: usize,
    /// How many nodes may have forgotten the lock, or have it but no vote; such a node has voted for no other claim
    /// since.
    without_vote: usize,
    /// The numbers of the nodes where the lock may be set again.
    lacking_nodes: Vec<usize>,
    /// An operator broke the hold.
    broken: bool,
    /// The last error of a node.
    error: Option<EngineError>,
}

impl HoldTally {
    /// Counts the answer of the node of this number: the words of `lua/redlock/renew.lua` and `release.lua`, and "new"
    /// of [`with_vote`].
    fn add(&mut self, index: usize, reply: Result<String, EngineError>) {
        match reply.as_deref() {
            Ok("extended" | "freed") => self.with_lock += 1,
            Ok("new") => self.without_vote += 1,
            Ok("young") => {
                self.without_vote += 1;
                self.lacking_nodes.push(index);
            }
            Ok(word) => {
                self.without_lock += 1;
                self.broken |= word == "broken";
                if word == "missing" {
                    self.lacking_nodes.push(index);
                }
            }
            Err(error) => self.error = Some(error.without_source()),
        }
    }

    /// Whether it is certain that a majority has the lock, or that no majority has it.
    fn is_decided(&self, nodes: usize, quorum: usize) -> bool {
        self.with_lock >= quorum || self.without_lock > nodes - quorum
    }

    /// Whether the hold lasted until now, and no other claim can have had the name.
    fn is_freed(&self, quorum: usize) -> bool {
        self.with_lock > 0 && self.with_lock + self.without_vote >= quorum
    }

    /// The error if too few nodes answered.
    fn unknown(&self) -> EngineError {
        let why = self.error.as_ref().map_or("the others do not answer in time", |error| &error.message);
        EngineError::new(Fault::Unknown, format!("no majority of the nodes answered: {why}"))
    }

    fn renewed(&self, nodes: usize, quorum: usize, ttl: Duration) -> Renewed {
        if self.with_lock >= quorum {
            return Renewed::Extended { ttl: Some(validity(ttl)) };
        }
        if self.without_lock > nodes - quorum {
            return Renewed::Lost(if self.broken { Loss::Broken } else { Loss::Gone });
        }
        // The hold lasts until its deadline, and the next renewal may extend it.
        Renewed::Unknown(self.unknown())
    }

    fn released(&self, nodes: usize, quorum: usize) -> Released {
        if self.is_freed(quorum) {
            Released::Freed
        } else if self.without_lock > nodes - quorum
            || self.with_lock == 0 && self.without_lock + self.without_vote == nodes
        {
            Released::NotThere
        } else {
            Released::Unknown(self.unknown())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers_of(words: &[&str]) -> HoldTally {
        let mut answers = HoldTally::default();
        for (index, word) in words.iter().enumerate() {
            match *word {
                "-" => {}
                "error" => answers.add(index, Err(EngineError::new(Fault::Unknown, "broke"))),
                word => answers.add(index, Ok(word.to_owned())),
            }
        }
        answers
    }

    #[test]
    fn a_hold_is_lost_only_without_a_possible_majority() {
        for (words, expected) in [
            (["extended", "extended", "-"], "Extended { ttl: Some(900ms) }"),
            (["extended", "missing", "-"], "Unknown"),
            (["extended", "error", "-"], "Unknown"),
            (["error", "error", "error"], "Unknown"),
            (["extended", "missing", "extended"], "Extended { ttl: Some(900ms) }"),
            (["missing", "missing", "-"], "Lost(Gone)"),
            (["extended", "gone", "gone"], "Lost(Gone)"),
            (["missing", "broken", "-"], "Lost(Broken)"),
            // A node that forgot the lock votes for no other claim before the deadline.
            (["extended", "young", "missing"], "Unknown"),
            (["extended", "new", "-"], "Unknown"),
            (["extended", "new", "extended"], "Extended"),
            (["young", "young", "missing"], "Unknown"),
        ] {
            let renewed = format!("{:?}", answers_of(&words).renewed(3, 2, Duration::from_secs(1)));
            assert!(renewed.starts_with(expected), "{words:?}: {renewed}");
        }
        assert_eq!(answers_of(&["extended", "missing", "extended"]).lacking_nodes, [1]);
    }

    #[test]
    fn a_release_is_certain_only_by_a_majority() {
        for (words, expected) in [
            (["freed", "freed", "-"], "Freed"),
            (["freed", "absent", "-"], "Unknown"),
            (["freed", "absent", "other"], "NotThere"),
            (["absent", "absent", "-"], "NotThere"),
            (["freed", "error", "error"], "Unknown"),
            (["freed", "young", "-"], "Freed"),
            (["young", "absent", "-"], "Unknown"),
            (["young", "absent", "young"], "NotThere"),
        ] {
            let released = format!("{:?}", answers_of(&words).released(3, 2));
            assert!(released.starts_with(expected), "{words:?}: {released}");
        }
    }
}

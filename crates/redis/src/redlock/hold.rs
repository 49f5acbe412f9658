//! Renewals and releases on a Redlock: many holds at once, on all nodes; the answers of a majority decide.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{
    BoxFuture, EngineError, Fault, Hold, Loss, Mode, Name, Release, Released, Renewed, TimeLeft,
};

use super::{
    agreement::validity,
    engine::RedlockEngine,
    messages::{ClaimEnd, MissingLock, renew_item},
    node::Node,
    node_requests::{NodeRequest, collect_answers},
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

/// How long renewals and releases wait for the answers of a majority. A long limit costs nothing: the deadline of a
/// hold does not depend on this limit, and a minority that hangs is not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// A renewal waits for answers for the ttl divided by this at most, so that the next renewal is not late.
const RENEWAL_LIMIT_DIVISOR: u32 = 4;

/// The answers of one node, one for each item.
type NodeReplies = Vec<Result<String, EngineError>>;

impl RedlockEngine {
    /// Renews holds on all nodes, and repairs locks that are missing on a minority.
    pub(super) async fn renew_now(&self, holds: &[Hold]) -> Vec<Renewed> {
        if holds.is_empty() {
            return Vec::new();
        }
        // The result is ignored: if too few nodes can be asked, the tally shows that.
        let _ = self.wait_until_ready().await;
        let limit = holds
            .iter()
            .map(|hold| hold.ttl / RENEWAL_LIMIT_DIVISOR)
            .min()
            .unwrap_or_default()
            .min(ANSWER_TIMEOUT);
        let quarantine = self.quarantine();
        let mut tallies: Vec<_> = holds.iter().map(|_| HoldTally::default()).collect();
        let repairable: Arc<[RepairableHold]> = holds
            .iter()
            .map(|hold| RepairableHold { hold: hold.clone(), is_repair_allowed: AtomicBool::new(false) })
            .collect();
        let requests = self.requests_to_nodes(|node, conn| {
            let items = holds.iter().map(|hold| {
                Some(renew_item(&keys(node, &hold.name)?, hold, MissingLock::Report, quarantine))
            });
            let reply = ask_node(node, conn, Script::RenewNode, items.collect());
            let reply = with_judged_votes(Arc::clone(node), quarantine, reply);
            with_repairs(Arc::clone(node), Arc::clone(conn), Arc::clone(&repairable), reply)
        });
        let (nodes, quorum) = (self.nodes.len(), self.quorum());
        collect_answers(requests, limit, |index, replies: NodeReplies| {
            for ((tally, reply), repairable) in tallies.iter_mut().zip(replies).zip(&*repairable) {
                tally.count_reply(index, reply);
                repairable.is_repair_allowed.store(tally.with_lock >= quorum, Ordering::Release);
            }
            tallies.iter().all(|tally| tally.is_decided(nodes, quorum))
        })
        .await;
        let renewed = holds.iter().zip(&tallies).map(|(hold, tally)| {
            // A Redlock grants only exclusive holds.
            if hold.mode != Mode::Exclusive {
                return Renewed::Lost(Loss::Gone);
            }
            let renewed = tally.renewed(nodes, quorum, hold.ttl);
            if matches!(renewed, Renewed::Extended { .. }) {
                for node in tally.repairable_nodes.iter().map(|index| &self.nodes[*index]) {
                    if let Some(conn) = node.conn() {
                        repair(node, conn, hold);
                    }
                }
            }
            renewed
        });
        renewed.collect()
    }

    /// Releases claims on all nodes. A node that cannot be asked gets the release later.
    pub(super) async fn release_now(&self, releases: &[Release]) -> Vec<Released> {
        if releases.is_empty() {
            return Vec::new();
        }
        let _ = self.wait_until_ready().await;
        releases.iter().for_each(|release| self.set_waiting(release.id, false));
        let ends: Arc<[(Name, ClaimEnd)]> =
            releases.iter().map(|release| (release.name.clone(), claim_end(release))).collect();
        let quarantine = self.quarantine();
        let mut tallies: Vec<_> = releases.iter().map(|_| HoldTally::default()).collect();
        let requests = self.requests_to_nodes(|node, conn| {
            // An earlier request of the claim may still arrive at the node until the moment `until`.
            let (now, until) = (self.clock.now(), self.clock.now().after(REQUEST_LIFE));
            let items = ends.iter().map(|(name, claim_end)| {
                let tombstone = node.in_flight.release(claim_end.id, conn.number, now, until);
                Some(claim_end.item(&keys(node, name)?, tombstone, quarantine))
            });
            let reply = ask_node(node, conn, Script::ReleaseVote, items.collect());
            with_later_releases(Arc::clone(node), Arc::clone(&ends), reply)
        });
        // Nodes that cannot be asked now get the release later.
        let asked_nodes: Vec<usize> = requests.iter().map(|request| request.index).collect();
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| !asked_nodes.contains(index)) {
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
        collect_answers(requests, ANSWER_TIMEOUT, |index, replies: NodeReplies| {
            for (tally, reply) in tallies.iter_mut().zip(replies) {
                tally.count_reply(index, reply);
            }
            tallies.iter().all(|tally| tally.is_decided(nodes, quorum) || tally.is_freed(quorum))
        })
        .await;
        tallies.iter().map(|tally| tally.released(nodes, quorum)).collect()
    }

    /// Makes one request to each node that can be asked.
    fn requests_to_nodes(
        &self,
        ask: impl Fn(&Arc<Node>, &Arc<Conn>) -> BoxFuture<'static, NodeReplies>,
    ) -> Vec<NodeRequest<NodeReplies>> {
        let requests = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let conn = node.conn()?;
            Some(NodeRequest { index, node: Arc::clone(node), answer: ask(node, &conn), conn })
        });
        requests.collect()
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
        let ask_batch = |items: Items| {
            let (node, conn, count) = (&node, &conn, items.len());
            async move {
                match node.ask(conn, script, items).await {
                    Ok((values, _)) => texts(values, count),
                    Err(error) => (0..count).map(|_| Err(error.without_source())).collect(),
                }
            }
        };
        let mut replies = join_all(batches.into_iter().map(ask_batch)).await.into_iter().flatten();
        let reply_to = |is_sent: bool| {
            if is_sent {
                replies.next().unwrap_or_else(|| Err(unreadable()))
            } else {
                Ok("absent".to_owned())
            }
        };
        is_sent.into_iter().map(reply_to).collect()
    })
}

/// The texts of the answers to `count` items.
fn texts(values: crate::outbox::Values, count: usize) -> NodeReplies {
    let mut reply = Reply::new(values);
    (0..count).map(|_| reply.text()).collect()
}

/// Changes the answer "extended" of a node that is in quarantine into "new", which does not count as a vote. Such a
/// node may have forgotten its vote for another claim; if a lock that a repair has set on this node counted as a vote,
/// the node could have voted for two claims.
fn with_judged_votes(
    node: Arc<Node>,
    quarantine: Duration,
    replies: BoxFuture<'static, NodeReplies>,
) -> BoxFuture<'static, NodeReplies> {
    Box::pin(async move {
        let judge = |reply: String| match reply.strip_prefix("extended ") {
            Some(times) if has_vote(&node, times, quarantine) => "extended".to_owned(),
            Some(_) => "new".to_owned(),
            None => reply,
        };
        replies.await.into_iter().map(|reply| reply.map(judge)).collect()
    })
}

/// Whether the node has been running, and has had its data, for at least the quarantine. `times`: the node's time, and
/// how long it has had its data, both in microseconds.
fn has_vote(node: &Node, times: &str, quarantine: Duration) -> bool {
    let mut words = times.split(' ').map(|word| word.parse::<u64>().ok());
    let (Some(Some(node_micros)), Some(Some(data_age)), Some((_, started_micros))) =
        (words.next(), words.next(), node.run_id_and_start())
    else {
        return false;
    };
    Duration::from_micros(data_age.min(node_micros.saturating_sub(started_micros))) >= quarantine
}

/// A hold, and whether it is allowed to set its missing locks again: only while a majority of the nodes has the lock.
struct RepairableHold {
    hold: Hold,
    is_repair_allowed: AtomicBool,
}

/// Passes the replies of a node on, and sets missing locks again on the node, if a majority that has the lock answered
/// before this node. On nodes that answered earlier, `renew_now` sets the missing locks again when it has counted the
/// answers.
fn with_repairs(
    node: Arc<Node>,
    conn: Arc<Conn>,
    repairable: Arc<[RepairableHold]>,
    replies: BoxFuture<'static, NodeReplies>,
) -> BoxFuture<'static, NodeReplies> {
    Box::pin(async move {
        let replies = replies.await;
        for (RepairableHold { hold, is_repair_allowed }, reply) in repairable.iter().zip(&replies) {
            if matches!(reply.as_deref(), Ok("missing" | "young"))
                && is_repair_allowed.load(Ordering::Acquire)
            {
                repair(&node, Arc::clone(&conn), hold);
            }
        }
        replies
    })
}

/// Sets the missing lock of a hold again on a node, so that a later failure of another node does not end the hold. Only
/// called for a hold whose lock a majority has.
fn repair(node: &Arc<Node>, conn: Arc<Conn>, hold: &Hold) {
    let Some(keys) = keys(node, &hold.name) else { return };
    let (node, item, id) =
        (Arc::clone(node), renew_item(&keys, hold, MissingLock::SetAgain, Duration::ZERO), hold.id);
    runtime::detach(async move {
        let in_flight = node.in_flight.start(id, conn.number, node.client.clock.now());
        // After a release the lock must not be set again.
        if node.in_flight.is_released(id, node.client.clock.now())
            || node.ask(&conn, Script::RenewNode, [item].into()).await.is_ok()
        {
            in_flight.complete();
        }
    });
}

/// Passes the replies of a node on. Releases that the node has not answered are sent to it again later.
fn with_later_releases(
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
    /// The number of nodes that have possibly forgotten the lock ("young"), or have the lock while their vote does not
    /// count ("new"). If such a node forgot the lock, it has voted for no other claim since then.
    without_vote: usize,
    /// The numbers of the nodes where the lock is missing and can be set again.
    repairable_nodes: Vec<usize>,
    /// Whether a node answered that an operator broke the hold.
    is_broken: bool,
    /// The last error of a node.
    last_error: Option<EngineError>,
}

impl HoldTally {
    /// Counts the answer of the node of this number: the words of `lua/redlock/renew.lua` and `release.lua`, and "new"
    /// of [`with_judged_votes`].
    fn count_reply(&mut self, index: usize, reply: Result<String, EngineError>) {
        match reply.as_deref() {
            Ok("extended" | "freed") => self.with_lock += 1,
            Ok("new") => self.without_vote += 1,
            Ok("young") => {
                self.without_vote += 1;
                self.repairable_nodes.push(index);
            }
            Ok(word) => {
                self.without_lock += 1;
                self.is_broken |= word == "broken";
                if word == "missing" {
                    self.repairable_nodes.push(index);
                }
            }
            Err(error) => self.last_error = Some(error.without_source()),
        }
    }

    /// Whether it is certain that a majority has the lock, or that no majority has it.
    fn is_decided(&self, nodes: usize, quorum: usize) -> bool {
        self.with_lock >= quorum || self.without_lock > nodes - quorum
    }

    /// Whether the release freed the name: the hold lasted until now, and no other claim can have had the name.
    fn is_freed(&self, quorum: usize) -> bool {
        self.with_lock > 0 && self.with_lock + self.without_vote >= quorum
    }

    /// The error for an unknown outcome: too few nodes answered.
    fn unknown_outcome(&self) -> EngineError {
        let reason =
            self.last_error.as_ref().map_or("the others do not answer in time", |error| &error.message);
        EngineError::new(Fault::Unknown, format!("no majority of the nodes answered: {reason}"))
    }

    /// The result of the renewal.
    fn renewed(&self, nodes: usize, quorum: usize, ttl: Duration) -> Renewed {
        if self.with_lock >= quorum {
            return Renewed::Extended { ttl: Some(validity(ttl)), left: TimeLeft::Unknown };
        }
        if self.without_lock > nodes - quorum {
            return Renewed::Lost(if self.is_broken { Loss::Broken } else { Loss::Gone });
        }
        // The hold lasts until its deadline, and the next renewal may extend it.
        Renewed::Unknown(self.unknown_outcome())
    }

    /// The result of the release.
    fn released(&self, nodes: usize, quorum: usize) -> Released {
        if self.is_freed(quorum) {
            Released::Freed
        } else if self.without_lock > nodes - quorum
            || self.with_lock == 0 && self.without_lock + self.without_vote == nodes
        {
            Released::NotThere
        } else {
            Released::Unknown(self.unknown_outcome())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tally of these answers, one for each node; `-` is no answer.
    fn tally_of(words: &[&str]) -> HoldTally {
        let mut tally = HoldTally::default();
        for (index, word) in words.iter().enumerate() {
            match *word {
                "-" => {}
                "error" => tally.count_reply(index, Err(EngineError::new(Fault::Unknown, "broke"))),
                word => tally.count_reply(index, Ok(word.to_owned())),
            }
        }
        tally
    }

    #[test]
    fn a_hold_is_lost_only_without_a_possible_majority() {
        for (words, expected) in [
            (["extended", "extended", "-"], "Extended { ttl: Some(900ms), left: Unknown }"),
            (["extended", "missing", "-"], "Unknown"),
            (["extended", "error", "-"], "Unknown"),
            (["error", "error", "error"], "Unknown"),
            (["extended", "missing", "extended"], "Extended { ttl: Some(900ms), left: Unknown }"),
            (["missing", "missing", "-"], "Lost(Gone)"),
            (["extended", "gone", "gone"], "Lost(Gone)"),
            (["missing", "broken", "-"], "Lost(Broken)"),
            // A node that forgot the lock votes for no other claim before the deadline.
            (["extended", "young", "missing"], "Unknown"),
            (["extended", "new", "-"], "Unknown"),
            (["extended", "new", "extended"], "Extended"),
            (["young", "young", "missing"], "Unknown"),
        ] {
            let renewed = format!("{:?}", tally_of(&words).renewed(3, 2, Duration::from_secs(1)));
            assert!(renewed.starts_with(expected), "{words:?}: {renewed}");
        }
        assert_eq!(tally_of(&["extended", "missing", "extended"]).repairable_nodes, [1]);
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
            let released = format!("{:?}", tally_of(&words).released(3, 2));
            assert!(released.starts_with(expected), "{words:?}: {released}");
        }
    }
}

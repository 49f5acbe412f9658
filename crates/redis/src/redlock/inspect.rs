//! The operators' requests on the nodes: ping, list, show and break.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_core::{
    BoxFuture, Broken, Diagnostic, EngineError, Fault, Guarantee, HolderView, Inspect, Mode, Name, View,
    WaiterView,
};

use super::{
    agreement::validity,
    engine::RedlockEngine,
    node::Node,
    node_requests::{NodeRequest, collect_answers},
};
use crate::{
    inspect::{LOOKS_AT_ONCE, escape},
    outbox::{Items, Values},
    reply::Reply,
    runtime,
    scripts::{Item, Script},
    token_counter::LINEAGE,
};

/// How long to wait for a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait for the list of one node: the node reads all its keys, step by step.
const LIST_TIMEOUT: Duration = Duration::from_secs(4);
/// How many keys one `SCAN` looks at.
const SCAN_COUNT: u64 = 1000;

/// The beginning of the value of a lock whose hold an operator broke; the id of its claim follows.
const BROKEN: &str = "broken";

/// The name of a request that is only about the node.
const ANY_NAME: &str = "doctor";

/// A node's report about a name.
struct NodeReport {
    /// The value of the lock key; empty if there is none.
    value: String,
    /// How long the lock still lasts; `None` if it has no expiry.
    ttl_left: Option<Duration>,
    /// The newest token on the node.
    token: Option<TokenRecord>,
    /// The node's time, in microseconds.
    node_micros: u64,
    /// Whether the node may have forgotten its locks.
    may_have_forgotten: bool,
    /// The waiting claims: of each its id, since when it waits, in microseconds of the node's clock, and its owner.
    waiters: Vec<(String, u64, String)>,
}

/// The newest block of tokens on a node, and the grant of these tokens: see `lua/redlock/head.lua`.
#[derive(Clone)]
struct TokenRecord {
    first_token: u64,
    /// The claim that has the tokens.
    id: String,
    /// When the tokens were written, by the node's clock.
    since_micros: u64,
    owner: String,
}

impl RedlockEngine {
    /// The answers of all nodes that can be asked, with the numbers of the nodes; an error if fewer than a majority
    /// answer.
    async fn ask_all(
        &self,
        script: Script,
        items: impl Fn() -> Items,
    ) -> Result<Vec<(usize, Values)>, EngineError> {
        self.wait_until_ready().await?;
        let mut requests = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(conn) = node.conn() else { continue };
            let (asked_node, asked_conn, items) = (Arc::clone(node), Arc::clone(&conn), items());
            let answer = Box::pin(async move { asked_node.ask(&asked_conn, script, items).await });
            requests.push(NodeRequest { index, node: Arc::clone(node), conn, answer });
        }
        let (mut replies, mut errors) = (Vec::new(), Vec::new());
        collect_answers(requests, ANSWER_TIMEOUT, |index, answer| {
            match answer {
                Ok((values, _)) => replies.push((index, values)),
                Err(error) => errors.push(error),
            }
            false
        })
        .await;
        if replies.len() >= self.quorum() {
            return Ok(replies);
        }
        let fault = errors.first().map_or(Fault::Retry, |error| error.fault);
        let (count, nodes) = (replies.len(), self.nodes.len());
        let reasons: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        Err(EngineError::new(fault, format!("{count} of {nodes} nodes answered: {}", reasons.join("; "))))
    }

    /// Shows the holder and the waiters of a name.
    async fn show_now(&self, name: &Name) -> Result<View, EngineError> {
        let keys = self.keys(name)?;
        let replies = self.ask_all(Script::LookNode, || [Item::new(&keys)].into()).await?;
        let quarantine = self.quarantine();
        let reports =
            replies.into_iter().map(|(index, values)| read_report(&self.nodes[index], values, quarantine));
        Ok(view_of(name, keys.lock(), reports.collect::<Result<_, _>>()?, self.nodes.len()))
    }

    /// The numbers of the nodes that answer and have no vote yet, because they may have forgotten their data.
    pub(super) async fn nodes_without_vote(&self) -> Result<Vec<usize>, EngineError> {
        let name =
            Name::new(ANY_NAME).map_err(|error| EngineError::new(Fault::Internal, error.to_string()))?;
        let keys = self.keys(&name)?;
        let replies = self.ask_all(Script::LookNode, || [Item::new(&keys)].into()).await?;
        let mut without_vote = Vec::new();
        for (index, values) in replies {
            if read_report(&self.nodes[index], values, self.quarantine())?.may_have_forgotten {
                without_vote.push(index);
            }
        }
        Ok(without_vote)
    }

    /// Lists the names with this prefix that are held or waited for.
    async fn list_now(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        self.wait_until_ready().await?;
        let lock_prefix = &self.config.nodes[0].prefix;
        let pattern = format!("{}*", escape(&format!("{lock_prefix}{prefix}")));
        let mut requests = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(conn) = node.conn() else { continue };
            let (asked_node, asked_conn, pattern) = (Arc::clone(node), Arc::clone(&conn), pattern.clone());
            let answer = Box::pin(async move { scan(&asked_node, &asked_conn, &pattern).await });
            requests.push(NodeRequest { index, node: Arc::clone(node), conn, answer });
        }
        let (mut locks, mut answered_nodes, mut last_error) = (BTreeSet::new(), 0, None);
        let asked_nodes = requests.len();
        collect_answers(requests, LIST_TIMEOUT, |_, answer: Result<Vec<String>, EngineError>| {
            match answer {
                Ok(keys) => {
                    locks.extend(keys);
                    answered_nodes += 1;
                }
                Err(error) => last_error = Some(error),
            }
            answered_nodes == asked_nodes
        })
        .await;
        if answered_nodes < self.quorum() {
            return Err(last_error
                .unwrap_or_else(|| EngineError::new(Fault::Retry, "no majority of the nodes answered")));
        }
        let names: Vec<_> =
            locks.iter().filter_map(|lock| Name::new(lock.strip_prefix(lock_prefix)?).ok()).collect();
        let mut views = Vec::new();
        for names in names.chunks(LOOKS_AT_ONCE) {
            let answers = join_all(names.iter().map(|name| self.show_now(name))).await;
            for (name, answer) in names.iter().zip(answers) {
                match answer {
                    Ok(view)
                        if view.holders.is_empty() && view.waiters.is_empty() && view.problem.is_none() => {}
                    Ok(view) => views.push(view),
                    Err(error)
                        if matches!(error.fault, Fault::Misconfigured | Fault::Internal | Fault::Denied) =>
                    {
                        let lock = format!("{lock_prefix}{}", name.as_str());
                        views.push(View::unreadable(name.clone(), lock, &error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        views.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(views)
    }

    /// Ends the hold with this token on all nodes; with `force` at once, otherwise at the end of its lease.
    async fn break_now(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let keys = self.keys(name)?;
        let item = || [Item::new(&keys).number(token).number(force.into())].into();
        let replies = self.ask_all(Script::BreakNode, item).await?;
        let mut broken_nodes = 0;
        for (_, values) in replies {
            broken_nodes += usize::from(Reply::new(values).text()? == "done");
        }
        match broken_nodes {
            0 => Ok(Broken::NotHeld),
            _ if broken_nodes >= self.quorum() => Ok(Broken::Done),
            _ => {
                let (nodes, name) = (self.nodes.len(), name.as_str());
                let message = format!(
                    "{broken_nodes} of {nodes} nodes have ended the hold of {name:?}: try again when the others answer"
                );
                Err(EngineError::new(Fault::Retry, message))
            }
        }
    }

    /// Checks that a majority of the nodes answers.
    async fn ping_now(&self) -> Result<(), EngineError> {
        self.wait_until_ready().await?;
        let ask = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            async move {
                let conn = node.conn().ok_or_else(|| node.unavailable())?;
                let reply = runtime::within(ANSWER_TIMEOUT, conn.ask(&redis::cmd("TIME"))).await;
                reply.unwrap_or_else(|| Err(node.unavailable())).map(drop)
            }
        };
        let replies = join_all(self.nodes.iter().map(ask)).await;
        let answered = replies.iter().filter(|reply| reply.is_ok()).count();
        match replies.into_iter().find_map(Result::err) {
            Some(error) if answered < self.quorum() => Err(error),
            _ => Ok(()),
        }
    }
}

/// All keys of a node that match the pattern.
async fn scan(node: &Node, conn: &crate::conn::Conn, pattern: &str) -> Result<Vec<String>, EngineError> {
    let (mut keys, mut cursor) = (Vec::new(), 0);
    loop {
        let item = Item::of_key("").number(cursor).text(pattern.as_bytes()).number(SCAN_COUNT);
        let (reply, _) = node.ask(conn, Script::Names, [item].into()).await?;
        let mut reply = Reply::new(reply);
        cursor = reply.count()?;
        keys.extend(reply.texts()?);
        if cursor == 0 {
            return Ok(keys);
        }
    }
}

/// Reads the answer of `lua/redlock/look.lua`.
fn read_report(node: &Node, values: Values, quarantine: Duration) -> Result<NodeReport, EngineError> {
    let mut reply = Reply::new(values);
    let (value, ttl_left) = (reply.text()?, reply.millis()?);
    let token = parse_token_record(&reply.text()?);
    let rows = reply.texts()?;
    let waiters = rows.chunks_exact(2).filter_map(|row| {
        let mut words = row[1].splitn(3, ' ');
        let since = words.next()?.parse().ok()?;
        Some((row[0].clone(), since, words.nth(1)?.to_owned()))
    });
    let waiters = waiters.collect();
    // For how long the node has had its data; negative if it does not know.
    let data_age_micros = reply.number()?;
    let may_have_forgotten =
        u64::try_from(data_age_micros).map_or(true, |data_age| Duration::from_micros(data_age) < quarantine);
    // The node's time at this moment, computed from what is known of its clock.
    let now = node.client.clock.now();
    let clock_lead = node.clock_lead(now).map_or(0, |clock_lead| clock_lead.least);
    let node_micros = i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX).saturating_add(clock_lead);
    Ok(NodeReport {
        value,
        ttl_left,
        token,
        node_micros: u64::try_from(node_micros).unwrap_or(0),
        may_have_forgotten,
        waiters,
    })
}

/// Parses `<last token> <first token> <id> <end> <before> <since us> <owner>`: see `lua/redlock/head.lua`.
fn parse_token_record(text: &str) -> Option<TokenRecord> {
    let mut words = text.splitn(7, ' ');
    let (_last, first_token): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let id = words.next()?.to_owned();
    // After <end> and <before>.
    let since_micros = words.nth(2)?.parse().ok()?;
    Some(TokenRecord { first_token, id, since_micros, owner: words.next()?.to_owned() })
}

/// The holder by the votes of the reporting nodes, and the waiters on any of these nodes; `nodes` is the number of all
/// nodes. A claim still holds if some of its votes are on nodes that forgot the votes or do not answer: no other claim
/// can be granted the name before the lease ends. If more than one claim may hold, all of them are shown. At most one
/// of them holds: the others were refused, but left their locks and tokens on nodes that do not know of the holder.
fn view_of(name: &Name, key: String, reports: Vec<NodeReport>, nodes: usize) -> View {
    let quorum = nodes / 2 + 1;
    // The number of nodes that do not answer, or may have forgotten their vote: a lock that is on such a node now does
    // not count as a vote.
    let unsure_nodes =
        nodes - reports.len() + reports.iter().filter(|report| report.may_have_forgotten).count();
    let mut view = View::free(name.clone(), key);
    view.lineage = Some(LINEAGE);
    let mut votes: BTreeMap<&str, Vec<&NodeReport>> = BTreeMap::new();
    for report in reports.iter().filter(|report| !report.value.is_empty()) {
        votes.entry(claim_in_value(&report.value)).or_default().push(report);
    }
    let may_hold = votes.iter().filter_map(|(id, votes)| {
        let sure_votes =
            votes.iter().filter(|report| !report.may_have_forgotten || is_foreign(report)).count();
        let is_granted =
            votes.iter().any(|report| report.token.as_ref().is_some_and(|token| token.id == *id));
        let holds = sure_votes >= quorum || sure_votes + unsure_nodes >= quorum && is_granted;
        holds.then(|| (sure_votes, holder_view(id, votes, quorum.min(votes.len()))))
    });
    let mut may_hold: Vec<_> = may_hold.collect();
    // If a claim has a majority, the others do not hold. If none has, the oldest claim is shown first: claims that try
    // during its hold leave larger tokens.
    may_hold.sort_by_key(|(sure_votes, holder)| (Reverse(*sure_votes), holder.token));
    let is_sure = may_hold.first().is_some_and(|(sure_votes, _)| *sure_votes >= quorum);
    may_hold.truncate(if is_sure { 1 } else { nodes });
    may_hold.into_iter().for_each(|(_, holder)| view.add_holder(Mode::Exclusive, holder));
    let mut shown_ids = BTreeSet::new();
    for (id, since, owner) in reports.iter().flat_map(|report| &report.waiters) {
        if shown_ids.insert(id.clone()) {
            let now = reports.iter().map(|report| report.node_micros).max().unwrap_or(0);
            let waiting = Some(Duration::from_micros(now.saturating_sub(*since)));
            let waiter = WaiterView::new(id.clone(), owner.clone(), waiting);
            view.waiters.push(waiter.of_mode(Mode::Exclusive));
        }
    }
    view.waiters.sort_by_key(|waiter| Reverse(waiter.waiting));
    view
}

/// The id of the claim in a value of the lock key; the value itself if another program wrote it.
fn claim_in_value(value: &str) -> &str {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match value.split_once('-') {
        Some((BROKEN, id)) if is_id(id) => id,
        Some((id, attempt)) if is_id(id) && attempt.parse::<u32>().is_ok() => id,
        _ => value,
    }
}

/// Whether an operator broke the hold on this node.
fn is_broken(report: &NodeReport) -> bool {
    !is_foreign(report) && report.value.split_once('-').is_some_and(|(word, _)| word == BROKEN)
}

/// Whether another program wrote the lock: such a lock counts as a vote even on a restarted node.
fn is_foreign(report: &NodeReport) -> bool {
    claim_in_value(&report.value) == report.value
}

/// The view of the holder with these votes; `quorum` is the number of votes that the hold needs.
fn holder_view(id: &str, votes: &[&NodeReport], quorum: usize) -> HolderView {
    // The hold ends when the lock has expired on so many nodes that no majority is left.
    let mut ttls_left: Vec<_> = votes.iter().map(|report| report.ttl_left.unwrap_or(Duration::MAX)).collect();
    ttls_left.sort_unstable_by_key(|ttl_left| Reverse(*ttl_left));
    // The remaining validity, as the holder itself computes it.
    let remaining =
        ttls_left.get(quorum - 1).copied().filter(|ttl_left| *ttl_left < Duration::MAX).map(validity);
    let foreign = votes.iter().any(|report| is_foreign(report));
    let records = votes.iter().filter_map(|report| Some((report, report.token.as_ref()?)));
    let records: Vec<_> = records.filter(|(_, token)| token.id == id).collect();
    // An attempt whose answers came too late may have written its own, larger token on a minority.
    let nodes_with =
        |first_token: u64| records.iter().filter(|(_, token)| token.first_token == first_token).count();
    let granted =
        records.iter().max_by_key(|(_, token)| (nodes_with(token.first_token), token.first_token)).copied();
    let (token, held, owner) = match granted {
        Some((report, TokenRecord { first_token, since_micros, owner, .. })) => {
            let held = Duration::from_micros(report.node_micros.saturating_sub(*since_micros));
            (Some(*first_token), Some(held), owner.clone())
        }
        None if foreign => (None, None, "another program".to_owned()),
        None => (None, None, String::new()),
    };
    let broken = votes.iter().filter(|report| is_broken(report)).count() >= quorum;
    HolderView::new(id.to_owned(), owner).token(token).times(held, remaining).foreign(foreign).broken(broken)
}

impl Inspect for RedlockEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.ping_now())
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.guarantee_now())
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(self.diagnose_now())
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(self.list_now(prefix))
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(self.show_now(name))
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.break_now(name, token, force))
    }
}

#[cfg(test)]
mod tests;

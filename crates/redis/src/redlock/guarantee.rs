//! The guarantee of a Redlock: weaker than that of an engine with a consensus, and partly dependent on the present
//! state of the nodes.

use std::sync::Arc;

use leasehold_core::{EngineError, Guarantee, Level};

use super::{
    agreement::tolerance,
    engine::RedlockEngine,
    node::{Node, RoundTrip},
};
use crate::{
    guarantee::{self, Topology},
    open::micros,
    reply::unreadable,
};

/// Findings about the durability of a single server: they do not lower the level of a Redlock, because a node that may
/// have forgotten its data has no vote.
const IRRELEVANT_FINDINGS: [&str; 3] = ["appendonly", "appendfsync", "no-appendfsync-on-rewrite"];

impl RedlockEngine {
    /// The guarantee of the Redlock, with the findings about each node.
    pub(super) async fn guarantee_now(&self) -> Result<Guarantee, EngineError> {
        self.wait_until_ready().await?;
        let mut all = Guarantee::new(Level::LeaseBounded, &[]);
        all.lower(
            "the nodes",
            &format!("{} servers without a consensus", self.nodes.len()),
            "a durable server alone with a fence, or an engine with a consensus (etcd, ZooKeeper)",
            "when the clocks of a majority are set forward, or a majority fails and forgets while clocks are set, two may hold one lock",
        );
        for node in &self.nodes {
            match read_guarantee(node).await {
                Ok(of_node) => add_findings(&mut all, node, of_node),
                Err(error) => all.lower(
                    &node.address,
                    &format!("not to be asked ({})", error.message),
                    "an independent master that answers",
                    "while one of the nodes gives no vote, fewer others may fail",
                ),
            }
        }
        let now = self.clock.now();
        let clock_leads: Vec<_> = self.nodes.iter().filter_map(|node| node.clock_lead(now)).collect();
        let slowest = clock_leads.iter().map(|clock_lead| clock_lead.most).min();
        let fastest = clock_leads.iter().map(|clock_lead| clock_lead.least).max();
        if let (Some(slowest), Some(fastest)) = (slowest, fastest) {
            // The clocks differ by at least this.
            let (difference, allowed) = (fastest.saturating_sub(slowest), tolerance(self.config.max_ttl));
            if difference > i64::try_from(allowed.as_micros()).unwrap_or(i64::MAX) {
                all.lower(
                    "the clocks",
                    &format!("{} ms apart", difference / 1000),
                    &format!("within {} ms, and a twentieth of the ttl", allowed.as_millis()),
                    "nodes whose clocks do not agree have no vote together",
                );
            }
        }
        let quarantine = self.quarantine();
        all.note(format!(
            "A node that was started or emptied has no vote for {quarantine:?}, which max_ttl makes: persistence is not needed, and does not shorten it."
        ));
        all.note("Tokens are written on a majority and grow while no more than a minority forgets at a time: the fence refuses what a lock cannot.");
        all.note("Other programs with the plain lock are excluded, but compare no clocks, and do not wait for a restarted node.");
        Ok(all)
    }
}

/// Learns the clock of a node, and reads the guarantee of that node alone.
async fn read_guarantee(node: &Arc<Node>) -> Result<Guarantee, EngineError> {
    let conn = node.conn().ok_or_else(|| node.unavailable())?;
    let sent = node.client.clock.now();
    let time = conn.ask(&redis::cmd("TIME")).await.map_err(|error| node.with_name(&error))?;
    let round_trip = RoundTrip { sent, answered: node.client.clock.now() };
    node.learn(round_trip, micros(redis::from_redis_value(time).map_err(|_| unreadable())?));
    guarantee::read_guarantee(&conn, Topology::default()).await
}

/// Adds the findings about one node, with the address of the node.
fn add_findings(all: &mut Guarantee, node: &Node, of_node: Guarantee) {
    for finding in
        of_node.findings.into_iter().filter(|finding| !IRRELEVANT_FINDINGS.contains(&finding.what.as_str()))
    {
        let what = format!("{} of {}", finding.what, node.address);
        all.lower(&what, &finding.found, &finding.wanted, &finding.risk);
    }
}

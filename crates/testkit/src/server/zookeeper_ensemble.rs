//! A private ZooKeeper of three nodes, any of which can be cut off from the others.

use std::sync::Arc;

use super::{
    child::free_port,
    cluster::{Cluster, ClusterNode, Link, MAJORITY, SIZE},
    gate::{Gate, Passage},
    switch::Switch,
    zookeeper::HASTY,
    zookeeper_node::ZookeeperNode,
};

/// A private ZooKeeper of three nodes, that never waits for the disk. A tick is 500 ms; a node that is cut off does not hear that
/// its connections are gone, and finds out after ten ticks, in which it goes on answering its clients. What was under way when it
/// was cut off arrives when it is healed.
pub type ZookeeperEnsemble = Cluster<ZookeeperNode>;

/// What is between two nodes.
pub struct GateLink {
    ends: [usize; 2],
    /// What passes between them, in either direction.
    gate: Arc<Gate>,
}

impl ZookeeperEnsemble {
    /// Starts one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more lines of each `zoo.cfg`. A line that begins with `-` is an option of `java`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_with(lines: &[&str]) -> Self {
        let addresses: Vec<_> = (0..SIZE).map(|_| [free_port(), free_port()]).collect();
        let links: Vec<_> =
            [[0, 1], [0, 2], [1, 2]].map(|ends| GateLink { ends, gate: Arc::default() }).into();
        let node = |index| {
            let mut node = ZookeeperNode::new();
            let switch = switch(index, &links, &addresses);
            node.id = Some(index);
            node.lines = configuration(&addresses, &switch, lines);
            node.switch = Some(switch);
            node
        };
        let nodes: Vec<_> = (0..SIZE).map(node).collect();
        Self::started(nodes, links)
    }

    /// What a node answers to one of its words of four letters, such as `mntr`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn four_letters(&self, node: usize, word: &str) -> String {
        self.node(node).four_letters(word).expect("the server answers")
    }
}

impl ClusterNode for ZookeeperNode {
    const SCHEME: &'static str = "zookeeper";
    type Link = GateLink;

    /// The newest leader: one that was lost may not know it yet.
    fn leader(present: &[(usize, &Self)]) -> Option<usize> {
        let statuses: Vec<_> =
            present.iter().filter_map(|(index, node)| Some((index, node.status()?))).collect();
        let leaders = statuses.iter().filter(|(_, one)| one.leads);
        let (leader, _) = leaders.max_by_key(|(_, one)| one.zxid)?;
        (statuses.len() >= MAJORITY).then_some(**leader)
    }
}

impl Link for GateLink {
    fn ends(&self) -> [usize; 2] {
        self.ends
    }

    fn cut(&self) {
        self.gate.set(Passage::Held);
    }

    fn heal(&self) {
        self.gate.set(Passage::Open);
    }
}

impl Drop for GateLink {
    fn drop(&mut self) {
        // Who still waits waits no longer.
        self.gate.set(Passage::Lost);
    }
}

/// Whom a node may call, and by which way.
fn switch(from: usize, links: &[GateLink], addresses: &[[u16; 2]]) -> Switch {
    let others = (0..SIZE).filter(|to| *to != from);
    let routes = others.flat_map(|to| {
        let link = links
            .iter()
            .find(|link| [from, to].iter().all(|end| link.ends.contains(end)))
            .expect("all are linked");
        addresses[to].map(|address| (address, Arc::clone(&link.gate)))
    });
    Switch::start(routes.collect())
}

fn configuration(addresses: &[[u16; 2]], switch: &Switch, lines: &[&str]) -> Vec<String> {
    let mut all = [HASTY, "initLimit=20", "syncLimit=10"].map(str::to_owned).to_vec();
    let servers = addresses.iter().enumerate();
    all.extend(servers.map(|(node, [follow, elect])| format!("server.{node}=127.0.0.1:{follow}:{elect}")));
    // It calls nobody but through the switch, also not on this machine.
    all.push(format!("-DsocksProxyPort={}", switch.port));
    let socks = ["-DsocksProxyHost=127.0.0.1", "-DsocksProxyVersion=4", "-DsocksNonProxyHosts="];
    all.extend(socks.iter().chain(lines).map(|&line| line.to_owned()));
    all
}

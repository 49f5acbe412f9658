//! A private ZooKeeper of three nodes, any of which can be cut off from the others.

use std::sync::Arc;

use super::{
    child::free_port,
    cluster::{Cluster, ClusterNode, Link, MAJORITY, SIZE},
    gate::{Gate, Passage},
    socks_proxy::SocksProxy,
    zookeeper::NO_FSYNC,
    zookeeper_node::ZookeeperNode,
};

/// A private ZooKeeper of three nodes, which never wait until their data is on disk. A tick is 500 ms. A node that is
/// cut off gets no notice that its connections are gone: it finds out after ten ticks. Until then it answers its
/// clients. Messages that are in flight when the node is cut off arrive when it is healed.
pub type ZookeeperEnsemble = Cluster<ZookeeperNode>;

/// The link between two nodes.
pub struct GateLink {
    ends: [usize; 2],
    /// The gate for the messages of both directions.
    gate: Arc<Gate>,
}

impl ZookeeperEnsemble {
    /// Starts an ensemble.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an ensemble with further lines of each `zoo.cfg`. A line that begins with `-` is an option of `java`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start_with(lines: &[&str]) -> Self {
        let ports: Vec<_> = (0..SIZE).map(|_| [free_port(), free_port()]).collect();
        let links: Vec<_> =
            [[0, 1], [0, 2], [1, 2]].map(|ends| GateLink { ends, gate: Arc::default() }).into();
        let node = |index| {
            let mut node = ZookeeperNode::new();
            let socks_proxy = new_socks_proxy(index, &links, &ports);
            node.id = Some(index);
            node.lines = configuration(&ports, &socks_proxy, lines);
            node.socks_proxy = Some(socks_proxy);
            node
        };
        let nodes: Vec<_> = (0..SIZE).map(node).collect();
        Self::start_nodes(nodes, links)
    }

    /// The answer of a node to a four-letter command, such as `mntr`.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn four_letter_command(&self, node: usize, word: &str) -> String {
        self.node(node).four_letter_command(word).expect("the server answers")
    }
}

impl ClusterNode for ZookeeperNode {
    const SCHEME: &'static str = "zookeeper";
    type Link = GateLink;

    /// Of the nodes that report that they lead, the one with the newest transaction. A former leader may not know yet
    /// that another node replaced it.
    fn leader(present: &[(usize, &Self)]) -> Option<usize> {
        let statuses: Vec<_> =
            present.iter().filter_map(|(index, node)| Some((index, node.status()?))).collect();
        let leaders = statuses.iter().filter(|(_, status)| status.leads);
        let (leader, _) = leaders.max_by_key(|(_, status)| status.zxid)?;
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
        // Ends the threads that still wait at the gate.
        self.gate.set(Passage::Lost);
    }
}

/// The proxy through which a node connects to the ports of the others.
fn new_socks_proxy(node: usize, links: &[GateLink], ports: &[[u16; 2]]) -> SocksProxy {
    let others = (0..SIZE).filter(|to| *to != node);
    let routes = others.flat_map(|to| {
        let link = links
            .iter()
            .find(|link| [node, to].iter().all(|end| link.ends.contains(end)))
            .expect("all are linked");
        ports[to].map(|port| (port, Arc::clone(&link.gate)))
    });
    SocksProxy::start(routes.collect())
}

/// The lines of `zoo.cfg` of a node.
fn configuration(ports: &[[u16; 2]], socks_proxy: &SocksProxy, lines: &[&str]) -> Vec<String> {
    let mut config_lines = [NO_FSYNC, "initLimit=20", "syncLimit=10"].map(str::to_owned).to_vec();
    let servers = ports.iter().enumerate();
    config_lines
        .extend(servers.map(|(node, [follow, elect])| format!("server.{node}=127.0.0.1:{follow}:{elect}")));
    // All connections of the node go through the proxy, including those to addresses of this machine.
    config_lines.push(format!("-DsocksProxyPort={}", socks_proxy.port));
    let socks = ["-DsocksProxyHost=127.0.0.1", "-DsocksProxyVersion=4", "-DsocksNonProxyHosts="];
    config_lines.extend(socks.iter().chain(lines).map(|&line| line.to_owned()));
    config_lines
}

//! A private etcd of three nodes, any of which can be cut off from the others.

use serde_json::Value;

use super::{
    cluster::{Cluster, ClusterNode, Link, MAJORITY, SIZE},
    etcd_node::{EtcdNode, http_request},
    node::Node,
    proxy::Proxy,
};

/// A private etcd of three nodes, with the default timing of etcd. A node never waits until its data is on disk, like
/// an [`EtcdServer`](super::EtcdServer) that is not durable.
pub type EtcdCluster = Cluster<EtcdNode>;

/// The link from one node to another.
pub struct PeerLink {
    from: usize,
    to: usize,
    proxy: Proxy,
}

/// The status that a node reports.
struct Status {
    id: String,
    leader: String,
}

impl EtcdCluster {
    /// Starts a cluster.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let mut nodes: Vec<EtcdNode> = (0..SIZE).map(|_| EtcdNode::new()).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.arguments = arguments(index, node.port);
        }
        let links = (0..SIZE).flat_map(|from| links(from, &nodes)).collect();
        Self::start_nodes(nodes, links)
    }
}

impl ClusterNode for EtcdNode {
    const SCHEME: &'static str = "etcd";
    type Link = PeerLink;

    /// The node that a majority of all nodes, including this node itself, reports as the leader. A node that lost
    /// contact with the leader soon reports no leader.
    fn leader(present: &[(usize, &Self)]) -> Option<usize> {
        let statuses: Vec<_> =
            present.iter().filter_map(|(index, node)| Some((index, status(node.port)?))).collect();
        let (leader, _) = statuses.iter().find(|(_, status)| {
            let followers = statuses.iter().filter(|(_, other)| other.leader == status.id).count();
            status.leader == status.id && followers >= MAJORITY
        })?;
        Some(**leader)
    }
}

impl Link for PeerLink {
    fn ends(&self) -> [usize; 2] {
        [self.from, self.to]
    }

    fn cut(&self) {
        self.proxy.block();
    }

    fn heal(&self) {
        self.proxy.unblock();
    }
}

/// A node reaches a peer at a socket in the node's own directory, so that each pair has a separate link in each
/// direction. If peers were reached at ports, all nodes would use the same address for a peer.
fn peer_socket(index: usize) -> String {
    format!("peer{index}:1")
}

/// The links from one node to all others.
fn links(from: usize, nodes: &[EtcdNode]) -> Vec<PeerLink> {
    let others = nodes.iter().enumerate().filter(|(to, _)| *to != from);
    let link = |(to, node): (usize, &EtcdNode)| {
        let socket = nodes[from].instance().directory().join(peer_socket(to));
        PeerLink { from, to, proxy: Proxy::at_socket(&socket, node.peer_port) }
    };
    others.map(link).collect()
}

/// The arguments of one node.
fn arguments(index: usize, port: u16) -> Vec<String> {
    let clients = format!("http://127.0.0.1:{port}");
    let members: Vec<String> =
        (0..SIZE).map(|index| format!("node{index}=unix://{}", peer_socket(index))).collect();
    let arguments = [
        format!("--name=node{index}"),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--initial-advertise-peer-urls=unix://{}", peer_socket(index)),
        format!("--initial-cluster={}", members.join(",")),
        "--unsafe-no-fsync".to_owned(),
    ];
    arguments.into()
}

/// Asks a node for its status; `None` if it has no leader or does not answer.
fn status(port: u16) -> Option<Status> {
    let answer: Value = serde_json::from_str(&http_request(port, "POST /v3/maintenance/status")?).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // A node without a leader reports none.
    Some(Status { id: text(&answer["header"]["member_id"])?, leader: text(&answer["leader"])? })
}

//! A private etcd of three nodes, any of which can be cut off from the others.

use serde_json::Value;

use super::{
    cluster::{Cluster, ClusterNode, Link, MAJORITY, SIZE},
    etcd_node::{EtcdNode, ask},
    node::Node,
    proxy::Proxy,
};

/// A private etcd of three nodes, with etcd's own timing. As [`EtcdServer`](super::EtcdServer), it never waits for the disk.
pub type EtcdCluster = Cluster<EtcdNode>;

/// What one node says to another.
pub struct PeerLink {
    from: usize,
    to: usize,
    proxy: Proxy,
}

/// What a node says of itself.
struct Status {
    id: String,
    leader: String,
}

impl EtcdCluster {
    /// Starts one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let mut nodes: Vec<EtcdNode> = (0..SIZE).map(|_| EtcdNode::new()).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.arguments = arguments(index, node.port);
        }
        let links = (0..SIZE).flat_map(|from| links(from, &nodes)).collect();
        Self::started(nodes, links)
    }
}

impl ClusterNode for EtcdNode {
    const SCHEME: &'static str = "etcd";
    type Link = PeerLink;

    /// Whom a majority takes for the leader, itself among them: one that was lost is not believed in for long.
    fn leader(present: &[(usize, &Self)]) -> Option<usize> {
        let statuses: Vec<_> =
            present.iter().filter_map(|(index, node)| Some((index, status(node.port)?))).collect();
        let (leader, _) = statuses.iter().find(|(_, one)| {
            let followers = statuses.iter().filter(|(_, other)| other.leader == one.id).count();
            one.leader == one.id && followers >= MAJORITY
        })?;
        Some(**leader)
    }
}

impl Link for PeerLink {
    fn ends(&self) -> [usize; 2] {
        [self.from, self.to]
    }

    fn cut(&self) {
        self.proxy.sever();
    }

    fn heal(&self) {
        self.proxy.mend();
    }
}

/// A peer is reached at a socket in the directory of who calls it, so that each pair has a link of its own in each direction:
/// a port would be the same for all who call.
fn peer(index: usize) -> String {
    format!("peer{index}:1")
}

fn links(from: usize, nodes: &[EtcdNode]) -> Vec<PeerLink> {
    let others = nodes.iter().enumerate().filter(|(to, _)| *to != from);
    let link = |(to, node): (usize, &EtcdNode)| {
        let socket = nodes[from].instance().directory().join(peer(to));
        PeerLink { from, to, proxy: Proxy::at_socket(&socket, node.peer_port) }
    };
    others.map(link).collect()
}

fn arguments(index: usize, port: u16) -> Vec<String> {
    let clients = format!("http://127.0.0.1:{port}");
    let all: Vec<String> = (0..SIZE).map(|index| format!("node{index}=unix://{}", peer(index))).collect();
    let arguments = [
        format!("--name=node{index}"),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--initial-advertise-peer-urls=unix://{}", peer(index)),
        format!("--initial-cluster={}", all.join(",")),
        "--unsafe-no-fsync".to_owned(),
    ];
    arguments.into()
}

fn status(port: u16) -> Option<Status> {
    let answer: Value = serde_json::from_str(&ask(port, "POST /v3/maintenance/status")?).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // Without a leader it names none.
    Some(Status { id: text(&answer["header"]["member_id"])?, leader: text(&answer["leader"])? })
}

//! A private etcd of three nodes, any of which can be cut off from the others.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    etcd_node::{Node, ask, etcdctl, lines},
    proxy::Proxy,
};

/// How many nodes it has: the fewest of which one may be lost.
const SIZE: usize = 3;
/// How many of them make a majority.
const MAJORITY: usize = 2;
/// How long an election may take: some seconds by its timing, more on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked for.
const LOOK: Duration = Duration::from_millis(20);

/// A private etcd of three nodes, with etcd's own timing. As [`EtcdServer`](super::EtcdServer), it never waits for the disk.
pub struct EtcdCluster {
    members: Vec<Member>,
}

struct Member {
    /// What it says to each of the others goes through one. They end before the directory that they are in.
    links: Vec<Link>,
    node: Node,
    paused: bool,
    cut: bool,
}

struct Link {
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
        let mut nodes: Vec<Node> = (0..SIZE).map(|_| Node::new()).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            node.arguments = arguments(index, node.port);
        }
        let links: Vec<_> = (0..SIZE).map(|from| links(from, &nodes)).collect();
        let member = |(links, node)| Member { links, node, paused: false, cut: false };
        let mut cluster = Self { members: links.into_iter().zip(nodes).map(member).collect() };
        cluster.members.iter_mut().for_each(|member| member.node.start());
        cluster.members.iter_mut().for_each(|member| member.node.wait_until_healthy());
        cluster
    }

    /// All three.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://{}", self.ports().map(|port| format!("127.0.0.1:{port}")).join(","))
    }

    /// Where they listen.
    #[must_use]
    pub fn ports(&self) -> [u16; SIZE] {
        std::array::from_fn(|index| self.members[index].node.port)
    }

    /// Waits until those that are neither killed, paused nor cut off agree on one of them, and answers which.
    ///
    /// # Panics
    /// When they do not agree: fewer than two are left, for instance.
    #[must_use]
    pub fn leader(&self) -> usize {
        let limit = Instant::now() + ELECTION_LIMIT;
        loop {
            if let Some(leader) = self.agreed() {
                return leader;
            }
            assert!(Instant::now() < limit, "no leader after {ELECTION_LIMIT:?}");
            sleep(LOOK);
        }
    }

    /// Kills a node. It keeps its data.
    pub fn kill(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.node.kill();
        member.paused = false;
    }

    /// Starts a node again, and waits until it takes writes if it is one of a majority.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.kill(node);
        self.members[node].node.start();
        self.join(node);
    }

    /// Stops a node's process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.node.signal(Signal::SIGSTOP);
        member.paused = true;
    }

    /// Lets it run again. It finds out by itself what it missed.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.node.signal(Signal::SIGCONT);
        member.paused = false;
    }

    /// Cuts a node off from the others, until [`heal`](Self::heal): neither hears of the other. Its clients still reach it.
    pub fn cut(&mut self, node: usize) {
        self.links_of(node).for_each(Proxy::sever);
        self.members[node].cut = true;
    }

    /// Lets it reach the others again, and waits until it takes writes if it is one of a majority.
    ///
    /// # Panics
    /// When it does not.
    pub fn heal(&mut self, node: usize) {
        self.links_of(node).for_each(Proxy::mend);
        self.members[node].cut = false;
        self.join(node);
    }

    /// Runs `etcdctl` against a node, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, node: usize, arguments: &[&str]) -> Vec<String> {
        lines(etcdctl(&format!("127.0.0.1:{}", self.members[node].node.port)).args(arguments))
    }

    /// What leads to a node, and away from it.
    fn links_of(&self, node: usize) -> impl Iterator<Item = &Proxy> {
        let pairs = self.members.iter().enumerate();
        let pairs = pairs.flat_map(|(from, member)| member.links.iter().map(move |link| (from, link)));
        pairs.filter(move |(from, link)| *from == node || link.to == node).map(|(_, link)| &link.proxy)
    }

    fn join(&mut self, node: usize) {
        let present = self.members.iter().filter(|member| member.is_present()).count();
        let member = &mut self.members[node];
        if member.is_present() && present >= MAJORITY {
            member.node.wait_until_healthy();
        }
    }

    /// Whom a majority takes for the leader, itself among them: one that was lost is not believed in for long.
    fn agreed(&self) -> Option<usize> {
        let present = self.members.iter().enumerate().filter(|(_, member)| member.is_present());
        let told: Vec<_> =
            present.filter_map(|(index, member)| Some((index, status(member.node.port)?))).collect();
        let (leader, _) = told.iter().find(|(_, one)| {
            let followers = told.iter().filter(|(_, other)| other.leader == one.id).count();
            one.leader == one.id && followers >= MAJORITY
        })?;
        Some(*leader)
    }
}

impl Member {
    /// Whether it runs and reaches the others.
    const fn is_present(&self) -> bool {
        self.node.is_running() && !self.paused && !self.cut
    }
}

/// A peer is reached at a socket in the directory of who calls it, so that each pair has a link of its own in each direction:
/// a port would be the same for all who call.
fn peer(index: usize) -> String {
    format!("peer{index}:1")
}

fn links(from: usize, nodes: &[Node]) -> Vec<Link> {
    let others = nodes.iter().enumerate().filter(|(to, _)| *to != from);
    let link = |(to, node): (usize, &Node)| {
        let socket = nodes[from].directory().join(peer(to));
        Link { to, proxy: Proxy::at_socket(&socket, node.peer_port) }
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

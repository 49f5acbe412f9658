//! A private cluster of three nodes of one kind, any of which can be cut off from the others.

use std::{
    array,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::node::Node;

/// The number of nodes: the smallest number at which a majority is left when one node is lost.
pub(super) const SIZE: usize = 3;
/// The number of nodes in a majority.
pub(super) const MAJORITY: usize = 2;
/// How long an election may take: it needs some seconds with the default timing, and more on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two checks of the state of the nodes.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A private cluster of three nodes, numbered from 0. Dropping this value kills the nodes.
pub struct Cluster<N: ClusterNode> {
    /// The links between each two nodes. The field order matters: the links are dropped before the directories of the
    /// nodes, which contain the sockets of the links.
    links: Vec<N::Link>,
    members: Vec<Member<N>>,
}

/// A kind of server that forms clusters.
pub trait ClusterNode: Node + Sized {
    /// The scheme of cluster URLs.
    const SCHEME: &'static str;

    /// The link between two nodes.
    type Link: Link;

    /// The number of the leader according to these nodes, which run and reach each other. `None`: these nodes have no
    /// leader.
    fn leader(present: &[(usize, &Self)]) -> Option<usize>;
}

/// Carries the messages between two nodes.
pub trait Link {
    /// The numbers of the two nodes.
    fn ends(&self) -> [usize; 2];

    /// Blocks all messages from now on.
    fn cut(&self);

    /// Lets all messages pass from now on.
    fn heal(&self);
}

/// A node and its state.
pub(super) struct Member<N> {
    pub(super) node: N,
    /// Whether its process is suspended.
    paused: bool,
    /// Whether it is cut off from the others.
    pub(super) cut: bool,
}

impl<N: ClusterNode> Cluster<N> {
    /// Starts all nodes and waits until they serve.
    pub(super) fn start_nodes(nodes: impl IntoIterator<Item = N>, links: Vec<N::Link>) -> Self {
        let mut cluster = Self { links, members: nodes.into_iter().map(Member::new).collect() };
        cluster.members.iter_mut().for_each(|member| member.node.start());
        cluster.members.iter_mut().for_each(|member| member.node.wait_until_serving());
        cluster
    }

    /// The URL with all three nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", N::SCHEME, self.ports().map(|port| format!("127.0.0.1:{port}")).join(","))
    }

    /// The ports for clients.
    #[must_use]
    pub fn ports(&self) -> [u16; SIZE] {
        array::from_fn(|node| self.node(node).port())
    }

    /// Waits until the nodes that are neither killed, paused nor cut off have a leader, and returns the number of the
    /// leader.
    ///
    /// # Panics
    /// If these nodes have no leader, for instance because fewer than two are left.
    #[must_use]
    pub fn leader(&self) -> usize {
        let leader = poll_for(ELECTION_LIMIT, || {
            let present: Vec<_> = self.present().collect();
            N::leader(&present)
        });
        leader.unwrap_or_else(|| panic!("no leader after {ELECTION_LIMIT:?}"))
    }

    /// Kills a node. Its data stays.
    pub fn kill(&mut self, node: usize) {
        self.members[node].kill();
    }

    /// Starts a node again. If it and the other present nodes are a majority, waits until it serves; otherwise does not
    /// wait.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.members[node].start();
        self.join(node);
    }

    /// Suspends a node's process until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn pause(&mut self, node: usize) {
        self.members[node].pause();
    }

    /// Resumes a node's process. The node catches up by itself.
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn resume(&mut self, node: usize) {
        self.members[node].resume();
    }

    /// Cuts a node off from the others in both directions, until [`heal`](Self::heal). Its clients still reach it.
    pub fn cut(&mut self, node: usize) {
        self.members[node].cut = true;
        self.links.iter().filter(|link| link.ends().contains(&node)).for_each(Link::cut);
    }

    /// Like [`cut`](Self::cut), but only cuts the two nodes off from each other, until one of them is healed.
    pub fn cut_between(&mut self, nodes: [usize; 2]) {
        let between = self.links.iter().filter(|link| nodes.iter().all(|node| link.ends().contains(node)));
        between.for_each(Link::cut);
    }

    /// Reconnects a node to all other nodes that are not cut off themselves. If it and the other present nodes are a
    /// majority, waits until it serves; otherwise does not wait.
    ///
    /// # Panics
    /// If the node does not serve in time.
    pub fn heal(&mut self, node: usize) {
        self.members[node].cut = false;
        let links_of_node = self.links.iter().filter(|link| link.ends().contains(&node));
        links_of_node
            .filter(|link| link.ends().iter().all(|&end| !self.members[end].cut))
            .for_each(Link::heal);
        self.join(node);
    }

    /// Runs a command of the operator's tool (such as `etcdctl`) against a node and returns the lines of its output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.node(node).command(words)
    }

    pub(super) fn node(&self, node: usize) -> &N {
        &self.members[node].node
    }

    /// If a node and the other present nodes are a majority, waits until the node serves; otherwise does not wait.
    fn join(&mut self, node: usize) {
        let present = self.present().count();
        let member = &mut self.members[node];
        if member.is_present() && present >= MAJORITY {
            member.node.wait_until_serving();
        }
    }

    /// The nodes that run and are connected to the others, with their numbers.
    fn present(&self) -> impl Iterator<Item = (usize, &N)> {
        let present = self.members.iter().enumerate().filter(|(_, member)| member.is_present());
        present.map(|(number, member)| (number, &member.node))
    }
}

impl<N: Node> Member<N> {
    /// A server that is not started yet.
    pub(super) const fn new(node: N) -> Self {
        Self { node, paused: false, cut: false }
    }

    /// Whether it runs and is connected to the others.
    pub(super) fn is_present(&self) -> bool {
        self.node.instance().is_running() && !self.paused && !self.cut
    }

    /// Starts the node with its data. A running node is killed first.
    pub(super) fn start(&mut self) {
        self.kill();
        self.node.start();
    }

    pub(super) fn kill(&mut self) {
        self.node.instance_mut().kill();
        self.paused = false;
    }

    pub(super) fn pause(&mut self) {
        self.node.instance().signal(Signal::SIGSTOP);
        self.paused = true;
    }

    pub(super) fn resume(&mut self) {
        self.node.instance().signal(Signal::SIGCONT);
        self.paused = false;
    }
}

/// Calls `poll` until it returns a value, for at most this time. `None`: it returned no value in this time.
pub(super) fn poll_for<T>(limit: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let found = poll();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        sleep(CHECK_INTERVAL);
    }
}

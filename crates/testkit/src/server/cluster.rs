//! A private cluster of three nodes of one kind, any of which can be cut off from the others.

use std::{
    array,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::node::Node;

/// How many nodes it has: the fewest of which one may be lost.
pub(super) const SIZE: usize = 3;
/// How many of them make a majority.
pub(super) const MAJORITY: usize = 2;
/// How long an election may take: some seconds by its timing, more on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
/// How often nodes are asked.
const LOOK: Duration = Duration::from_millis(20);

/// A private cluster of three nodes. Nodes have numbers from 0 on. A dropped cluster is stopped.
pub struct Cluster<N: ClusterNode> {
    /// What is between each two of them. They end before the directories that their sockets are in.
    links: Vec<N::Link>,
    members: Vec<Member<N>>,
}

/// A kind of server of which several make a cluster.
pub trait ClusterNode: Node + Sized {
    /// What URLs of a cluster begin with.
    const SCHEME: &'static str;

    /// What is between two nodes.
    type Link: Link;

    /// The number of the leader, by what these nodes say, that run and reach each other; `None` without one.
    fn leader(present: &[(usize, &Self)]) -> Option<usize>;
}

/// What two nodes say to each other goes through it.
pub trait Link {
    /// The numbers of the two nodes.
    fn ends(&self) -> [usize; 2];

    /// From now on nothing passes.
    fn cut(&self);

    /// From now on all passes.
    fn heal(&self);
}

/// A node and what was done to it.
pub(super) struct Member<N> {
    pub(super) node: N,
    paused: bool,
    /// Whether it is cut off from the others.
    pub(super) cut: bool,
}

impl<N: ClusterNode> Cluster<N> {
    /// Starts one of these nodes, and waits until they serve.
    pub(super) fn started(nodes: impl IntoIterator<Item = N>, links: Vec<N::Link>) -> Self {
        let mut cluster = Self { links, members: nodes.into_iter().map(Member::new).collect() };
        cluster.members.iter_mut().for_each(|member| member.node.start());
        cluster.members.iter_mut().for_each(|member| member.node.wait_until_serving());
        cluster
    }

    /// All three.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", N::SCHEME, self.ports().map(|port| format!("127.0.0.1:{port}")).join(","))
    }

    /// Where they listen.
    #[must_use]
    pub fn ports(&self) -> [u16; SIZE] {
        array::from_fn(|node| self.node(node).port())
    }

    /// Waits until those that are neither killed, paused nor cut off have a leader, and answers which.
    ///
    /// # Panics
    /// When they have none: fewer than two are left, for instance.
    #[must_use]
    pub fn leader(&self) -> usize {
        let leader = wait_for(ELECTION_LIMIT, || {
            let present: Vec<_> = self.present().collect();
            N::leader(&present)
        });
        leader.unwrap_or_else(|| panic!("no leader after {ELECTION_LIMIT:?}"))
    }

    /// Kills a node. It keeps its data.
    pub fn kill(&mut self, node: usize) {
        self.members[node].kill();
    }

    /// Starts a node again, and waits until it serves if it is one of a majority.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.members[node].start();
        self.join(node);
    }

    /// Stops a node's process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&mut self, node: usize) {
        self.members[node].pause();
    }

    /// Lets it run again. It finds out by itself what it missed.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&mut self, node: usize) {
        self.members[node].resume();
    }

    /// Cuts a node off from the others, until [`heal`](Self::heal): neither hears of the other. Its clients still reach it.
    pub fn cut(&mut self, node: usize) {
        self.members[node].cut = true;
        self.links.iter().filter(|link| link.ends().contains(&node)).for_each(Link::cut);
    }

    /// As [`cut`](Self::cut), between two nodes only, until one of them is healed.
    pub fn part(&mut self, nodes: [usize; 2]) {
        let between = self.links.iter().filter(|link| nodes.iter().all(|node| link.ends().contains(node)));
        between.for_each(Link::cut);
    }

    /// Lets it reach the others again, but for those that are cut off themselves, and waits until it serves if it is one of a
    /// majority.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn heal(&mut self, node: usize) {
        self.members[node].cut = false;
        let own = self.links.iter().filter(|link| link.ends().contains(&node));
        own.filter(|link| link.ends().iter().all(|&end| !self.members[end].cut)).for_each(Link::heal);
        self.join(node);
    }

    /// Runs the operator's command against a node, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.node(node).command(words)
    }

    pub(super) fn node(&self, node: usize) -> &N {
        &self.members[node].node
    }

    fn join(&mut self, node: usize) {
        let present = self.present().count();
        let member = &mut self.members[node];
        if member.is_present() && present >= MAJORITY {
            member.node.wait_until_serving();
        }
    }

    fn present(&self) -> impl Iterator<Item = (usize, &N)> {
        let present = self.members.iter().enumerate().filter(|(_, member)| member.is_present());
        present.map(|(number, member)| (number, &member.node))
    }
}

impl<N: Node> Member<N> {
    /// One that does not run yet.
    pub(super) const fn new(node: N) -> Self {
        Self { node, paused: false, cut: false }
    }

    /// Whether it runs and reaches the others.
    pub(super) fn is_present(&self) -> bool {
        self.node.instance().is_running() && !self.paused && !self.cut
    }

    /// Starts it, again if it runs, with the data that it has.
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

/// Waits until there is what is looked for, but not longer than this.
pub(super) fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let limit = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > limit {
            return found;
        }
        sleep(LOOK);
    }
}

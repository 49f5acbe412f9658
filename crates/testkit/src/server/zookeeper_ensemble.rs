//! A private ZooKeeper of three nodes, any of which can be cut off from the others.

use std::{
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::{
    child::free_port,
    gate::{Gate, Passage},
    switch::Switch,
    zookeeper::HASTY,
    zookeeper_node::Node,
};

/// How many nodes it has: the fewest of which one may be lost.
const SIZE: usize = 3;
/// How many of them make a majority.
const MAJORITY: usize = 2;
/// How long an election may take: some seconds by its timing, more on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked for.
const LOOK: Duration = Duration::from_millis(20);

/// A private ZooKeeper of three nodes, that never waits for the disk. A tick is 500 ms; a node that is cut off finds out
/// after ten, in which it goes on answering its clients.
pub struct ZookeeperEnsemble {
    members: Vec<Member>,
    /// What is between each two of them.
    links: Vec<Link>,
}

struct Member {
    node: Node,
    paused: bool,
    cut: bool,
    /// Through it the node calls others.
    _switch: Switch,
}

struct Link {
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
        let links: Vec<_> = [[0, 1], [0, 2], [1, 2]].map(Link::new).into();
        let member = |index| {
            let mut node = Node::new();
            let switch = switch(index, &links, &addresses);
            node.id = Some(index);
            node.lines = configuration(&addresses, &switch, lines);
            Member { node, paused: false, cut: false, _switch: switch }
        };
        let mut ensemble = Self { members: (0..SIZE).map(member).collect(), links };
        ensemble.members.iter_mut().for_each(|member| member.node.start());
        ensemble.members.iter_mut().for_each(|member| member.node.wait_until_serving());
        ensemble
    }

    /// All three.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.ports().map(|port| format!("127.0.0.1:{port}")).join(","))
    }

    /// Where they listen.
    #[must_use]
    pub fn ports(&self) -> [u16; SIZE] {
        std::array::from_fn(|index| self.members[index].node.port)
    }

    /// Waits until one of those that are neither killed, paused nor cut off leads a majority of them, and answers which.
    ///
    /// # Panics
    /// When none does: fewer than two are left, for instance.
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

    /// Starts a node again, and waits until it serves if it is one of a majority.
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

    /// Cuts a node off from the others, until [`heal`](Self::heal): neither hears of the other, nor that the connection is
    /// gone. Its clients still reach it.
    pub fn cut(&mut self, node: usize) {
        self.members[node].cut = true;
        let own = self.links.iter().filter(|link| link.ends.contains(&node));
        own.for_each(|link| link.gate.set(Passage::Held));
    }

    /// As [`cut`](Self::cut), between two nodes only, until one of them is healed.
    pub fn part(&mut self, nodes: [usize; 2]) {
        let between = self.links.iter().filter(|link| link.is_between(nodes));
        between.for_each(|link| link.gate.set(Passage::Held));
    }

    /// Lets it reach the others again, but for those that are cut off themselves, and waits until it serves if it is one of a
    /// majority. What was under way when it was cut off arrives.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn heal(&mut self, node: usize) {
        self.members[node].cut = false;
        let whole = |link: &&Link| link.ends.iter().all(|&end| !self.members[end].cut);
        let own = self.links.iter().filter(|link| link.ends.contains(&node));
        own.filter(whole).for_each(|link| link.gate.set(Passage::Open));
        self.join(node);
    }

    /// What a node answers to one of its words of four letters, such as `mntr`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn four_letters(&self, node: usize, word: &str) -> String {
        self.members[node].node.four_letters(word).expect("the server answers")
    }

    /// Runs ZooKeeper's own command line against a node, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.members[node].node.command(words)
    }

    fn join(&mut self, node: usize) {
        let present = self.members.iter().filter(|member| member.is_present()).count();
        let member = &mut self.members[node];
        if member.is_present() && present >= MAJORITY {
            member.node.wait_until_serving();
        }
    }

    /// The newest leader: one that was lost may not know it yet.
    fn agreed(&self) -> Option<usize> {
        let present = self.members.iter().enumerate().filter(|(_, member)| member.is_present());
        let told: Vec<_> =
            present.filter_map(|(index, member)| Some((index, member.node.status()?))).collect();
        let leaders = told.iter().filter(|(_, one)| one.leads);
        let (leader, _) = leaders.max_by_key(|(_, one)| one.zxid)?;
        (told.len() >= MAJORITY).then_some(*leader)
    }
}

impl Member {
    /// Whether it runs and reaches the others.
    const fn is_present(&self) -> bool {
        self.node.is_running() && !self.paused && !self.cut
    }
}

impl Link {
    fn new(ends: [usize; 2]) -> Self {
        Self { ends, gate: Arc::default() }
    }

    fn is_between(&self, nodes: [usize; 2]) -> bool {
        self.ends == nodes || self.ends == [nodes[1], nodes[0]]
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Who still waits waits no longer.
        self.gate.set(Passage::Lost);
    }
}

/// Whom a node may call, and by which way.
fn switch(from: usize, links: &[Link], addresses: &[[u16; 2]]) -> Switch {
    let others = (0..SIZE).filter(|to| *to != from);
    let ways = others.flat_map(|to| {
        let link = links.iter().find(|link| link.is_between([from, to])).expect("all are linked");
        addresses[to].map(|address| (address, Arc::clone(&link.gate)))
    });
    Switch::start(ways.collect())
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

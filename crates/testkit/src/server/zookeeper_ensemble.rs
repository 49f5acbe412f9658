//! A private ZooKeeper of three nodes, any of which can be cut off from the others.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::{child::free_port, proxy::Proxy, zookeeper::HASTY, zookeeper_node::Node};

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
    /// Every way from a node to another.
    links: Vec<Link>,
}

struct Member {
    node: Node,
    /// Where others follow it, and where they elect.
    doors: [u16; 2],
    paused: bool,
    cut: bool,
}

struct Link {
    ends: [usize; 2],
    proxies: [Proxy; 2],
}

/// What a node says of itself.
struct Status {
    mode: String,
    zxid: u64,
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
        let member = |_| {
            let doors = [free_port(), free_port()];
            Member { node: Node::new(), doors, paused: false, cut: false }
        };
        let mut members: Vec<_> = (0..SIZE).map(member).collect();
        let doors: Vec<_> = members.iter().map(|member| member.doors).collect();
        for (index, member) in members.iter_mut().enumerate() {
            member.node.id = Some(index);
            member.node.lines = configuration(&doors, lines);
            let hosts = member.node.directory().join("hosts");
            fs::write(hosts, self::hosts(index)).expect("a private directory takes a file");
        }
        let pairs = (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| [from, to]));
        let links = pairs.filter(|[from, to]| from != to).map(|ends| Link::new(ends, doors[ends[1]]));
        let mut ensemble = Self { links: links.collect(), members };
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
        self.links.iter().filter(|link| link.ends.contains(&node)).for_each(Link::hold);
    }

    /// As [`cut`](Self::cut), between two nodes only, until one of them is healed.
    pub fn part(&mut self, nodes: [usize; 2]) {
        let between = |link: &&Link| nodes.iter().all(|node| link.ends.contains(node));
        self.links.iter().filter(between).for_each(Link::hold);
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
        own.filter(whole).for_each(Link::let_go);
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
            present.filter_map(|(index, member)| Some((index, status(&member.node)?))).collect();
        let leaders = told.iter().filter(|(_, one)| one.mode == "leader");
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
    /// Nodes call each other by name, and each finds another at an address of this machine that is this pair's own, in this
    /// direction, with a proxy at the same ports. (They tell each other where they are: an address would lead past it.)
    fn new(ends: [usize; 2], doors: [u16; 2]) -> Self {
        let address = |door| SocketAddr::from((address(ends), door));
        Self { ends, proxies: doors.map(|door| Proxy::at_address(address(door), door)) }
    }

    fn hold(&self) {
        self.proxies.iter().for_each(Proxy::hold);
    }

    fn let_go(&self) {
        self.proxies.iter().for_each(Proxy::let_go);
    }
}

fn name(node: usize) -> String {
    format!("node{node}")
}

/// Where the first finds the second: itself, where it is.
fn address([from, to]: [usize; 2]) -> Ipv4Addr {
    let part = |node| u8::try_from(node + 1).expect("nodes are few");
    if from == to { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(127, 1, part(from), part(to)) }
}

/// The names, as a node finds them.
fn hosts(from: usize) -> String {
    (0..SIZE).map(|to| format!("{} {}\n", address([from, to]), name(to))).collect()
}

fn configuration(doors: &[[u16; 2]], lines: &[&str]) -> Vec<String> {
    let usual = [HASTY, "initLimit=20", "syncLimit=10", "-Djdk.net.hosts.file=hosts"].map(str::to_owned);
    let servers = doors.iter().enumerate();
    let servers =
        servers.map(|(node, [follow, elect])| format!("server.{node}={}:{follow}:{elect}", name(node)));
    usual.into_iter().chain(servers).chain(lines.iter().map(|&line| line.to_owned())).collect()
}

fn status(node: &Node) -> Option<Status> {
    let answer = node.four_letters("srvr")?;
    let field = |name| answer.lines().find_map(|line| line.strip_prefix(name));
    let zxid = field("Zxid: 0x").and_then(|text| u64::from_str_radix(text, 16).ok());
    Some(Status { mode: field("Mode: ")?.to_owned(), zxid: zxid? })
}

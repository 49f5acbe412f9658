//! A private Redis Cluster.

use std::{collections::BTreeSet, net::TcpListener, process::Command, time::Duration};

#[cfg(feature = "tls")]
use super::redis_tls::{Bus, encrypt};
use super::{
    child::free_port,
    cluster::wait_for,
    redis_cluster_view::{Known, Role, read},
    redis_group::{Group, wait},
    redis_node::RedisNode,
    redis_wire::RedisAnswer,
};

/// How many slots there are.
pub(super) const SLOTS: u16 = 16_384;
/// How long a change of owner may take when other things may be in its way: several times the 5 s of a planned one.
pub(super) const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// How far a node's port for other nodes is from its own, where it cannot be chosen (before 7.0).
const BUS_DISTANCE: u16 = 10_000;

/// How the nodes are started.
#[derive(Clone, Copy, Debug)]
pub struct RedisClusterOptions<'a> {
    /// How many masters share the slots: nodes 0, 1 and so on.
    pub masters: usize,
    /// How many replicas there are: the nodes after the masters, of one master after another.
    pub replicas: usize,
    /// After how long a node that does not answer is taken for down (`cluster-node-timeout`).
    pub node_timeout: Duration,
    /// What the nodes want from clients and each other.
    pub password: Option<&'a str>,
    /// More arguments of `redis-server`.
    pub arguments: &'a [&'a str],
    /// Whether each node has a clock of its own.
    pub clocks: bool,
    /// Whether nodes take encrypted connections too, of clients with a certificate of their authority, and speak so with each other.
    #[cfg(feature = "tls")]
    pub tls: bool,
}

impl Default for RedisClusterOptions<'_> {
    fn default() -> Self {
        let node_timeout = Duration::from_millis(1500);
        Self {
            masters: 3,
            replicas: 3,
            node_timeout,
            password: None,
            arguments: &[],
            clocks: false,
            #[cfg(feature = "tls")]
            tls: false,
        }
    }
}

/// How a replica becomes the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisFailover {
    /// The master agrees and loses nothing.
    Plain,
    /// The master is not asked, but the other masters are.
    Force,
    /// Nobody is asked: there are two owners until the others hear of it.
    Takeover,
}

/// A private Redis Cluster. Node 0 and those after it are masters at first, then come their replicas, then those that were added.
/// What nodes say to each other goes through the process of the test.
pub struct RedisCluster {
    pub(super) group: Group,
    /// What nodes are called among themselves.
    pub(super) ids: Vec<String>,
    /// Those that are no part of it any more.
    pub(super) gone: BTreeSet<usize>,
    password: Option<String>,
    arguments: Vec<String>,
    clocks: bool,
    /// Where each node takes encrypted connections, if they do.
    #[cfg(feature = "tls")]
    tls: Option<Vec<u16>>,
}

impl RedisCluster {
    /// Starts one of three masters and three replicas, whose nodes are quick to take others for down.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(RedisClusterOptions::default())
    }

    /// Starts one, and waits until all nodes serve and know each other.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_with(options: RedisClusterOptions<'_>) -> Self {
        let mut cluster = Self {
            group: Group::new(),
            ids: Vec::new(),
            gone: BTreeSet::new(),
            password: options.password.map(str::to_owned),
            arguments: arguments(options),
            clocks: options.clocks,
            #[cfg(feature = "tls")]
            tls: options.tls.then(Vec::new),
        };
        #[cfg(feature = "tls")]
        if options.tls {
            super::certificates::write(cluster.group.directory());
        }
        let size = options.masters + options.replicas;
        (0..size).for_each(|_| cluster.admit());
        (0..options.masters).for_each(|node| cluster.give_share(node, options.masters));
        let pairs = (0..size).flat_map(|node| (0..node).map(move |other| (node, other)));
        pairs.for_each(|(node, other)| cluster.introduce(node, other));
        (options.masters..size).for_each(|node| cluster.follow(node, node % options.masters));
        cluster.settle();
        cluster
    }

    /// All nodes that were not forgotten, with their password.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let members = self.members().map(|node| format!("127.0.0.1:{}", self.group.port(node)));
        format!("redis+cluster://{user}{}", members.collect::<Vec<_>>().join(","))
    }

    /// Where the nodes listen, by their number, also those that were forgotten.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.group.indices().map(|node| self.group.port(node)).collect()
    }

    /// Where the nodes take encrypted connections, by their number.
    ///
    /// # Panics
    /// When they do not.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_ports(&self) -> &[u16] {
        self.tls.as_deref().expect("the nodes take encrypted connections")
    }

    /// A file of an encrypted one, as of [`RedisServer`](super::RedisServer::certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.group.directory().join(name)
    }

    /// What a node is called among nodes.
    #[must_use]
    pub fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// Waits until all nodes that are neither killed, paused nor cut off agree on who they are, whom they follow and which slots they
    /// own, serve, and replicas follow their masters.
    ///
    /// # Panics
    /// When they do not come to it: a slot has no owner, for instance.
    pub fn settle(&self) {
        wait("a cluster that agrees", || self.is_settled().then_some(()));
    }

    /// Whether a node says that it is a master: not so one that is killed, paused or cut off.
    #[must_use]
    pub fn is_master(&self, node: usize) -> bool {
        self.group.is_master(node)
    }

    /// Makes a replica the master in the place of its master, as an operator does (`CLUSTER FAILOVER`), and waits until it says that
    /// it is one.
    ///
    /// # Errors
    /// What the replica says is wrong; that it did not become one, although it did not refuse: its master does not answer, or others
    /// gave it no vote.
    pub fn failover(&mut self, replica: usize, how: RedisFailover) -> Result<(), String> {
        let words: &[&str] = match how {
            RedisFailover::Plain => &["CLUSTER", "FAILOVER"],
            RedisFailover::Force => &["CLUSTER", "FAILOVER", "FORCE"],
            RedisFailover::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        };
        self.group.answer(replica, &[words])?;
        // Also one that is cut off, which may take over all the same.
        let role = || self.group.answer(replica, &[&["ROLE"]]).ok();
        let promoted = wait_for(CHANGE_LIMIT, || role().filter(|role| role[0] == "master"));
        promoted.map(drop).ok_or_else(|| format!("node {replica} is no master after {CHANGE_LIMIT:?}"))
    }

    /// Kills a node. It keeps what it knows of the cluster, and of its data what it saved, which without arguments that say so is nothing.
    pub fn kill(&mut self, node: usize) {
        self.group.kill(node);
    }

    /// Starts a node again, and waits until it has read its data.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.group.start(node);
    }

    /// Stops a node's process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&mut self, node: usize) {
        self.group.pause(node);
    }

    /// Lets it run again. It finds out by itself what it missed.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&mut self, node: usize) {
        self.group.resume(node);
    }

    /// Cuts a node off from the others, until [`heal`](Self::heal): connections between them end. Its clients still reach it, and a master
    /// serves them until the time after which nodes are taken for down.
    pub fn cut(&mut self, node: usize) {
        self.group.cut(node);
    }

    /// As [`cut`](Self::cut), between two nodes only, until one of them is healed.
    pub fn part(&mut self, nodes: [usize; 2]) {
        self.group.part(nodes);
    }

    /// Lets a node reach the others again, but for those that are cut off themselves.
    pub fn heal(&mut self, node: usize) {
        self.group.heal(node);
    }

    /// Sets a node's clock this many seconds away from the machine's.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, node: usize, seconds: i64) {
        self.group.set_clock(node, seconds);
    }

    /// Sends a node a command, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong, or does not answer.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.group.command(node, words)
    }

    /// As [`command`](Self::command), whatever it says: also where else to ask.
    ///
    /// # Errors
    /// What the node says is wrong, or why it did not answer.
    pub fn answer(&self, node: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(node, &[words])
    }

    /// As [`answer`](Self::answer), after `ASKING` on the same connection.
    ///
    /// # Errors
    /// What the node says is wrong, or why it did not answer.
    pub fn asking(&self, node: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(node, &[&["ASKING"], words])
    }

    /// What nodes want from clients.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Nodes that were not forgotten.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        self.group.indices().filter(|node| !self.gone.contains(node))
    }

    /// What a node that is present knows of all.
    pub(super) fn view(&self, node: usize) -> Option<Vec<Known>> {
        self.group.look(node, &["CLUSTER", "NODES"]).map(|lines| read(&lines))
    }

    /// Starts one more node, that knows no other.
    pub(super) fn admit(&mut self) {
        let mut node = RedisNode::new(self.arguments.clone());
        let bus = choose_bus(&mut node);
        #[cfg(feature = "tls")]
        if let Some(ports) = &mut self.tls {
            ports.push(encrypt(&mut node, self.group.directory(), "server", Bus::Encrypted));
        }
        if self.clocks {
            node.with_clock();
        }
        let index = self.group.admit(node, self.password.as_deref(), &[bus]);
        self.group.start(index);
        self.ids.push(self.command(index, &["CLUSTER", "MYID"]).concat());
        // So that no two are of the same age, which nodes would have to sort out.
        let epoch = self.group.len().to_string();
        self.command(index, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
    }

    fn give_share(&self, node: usize, masters: usize) {
        let share = |index: usize| usize::from(SLOTS) * index / masters;
        let slots: Vec<_> = (share(node)..share(node + 1)).map(|slot| slot.to_string()).collect();
        let words: Vec<_> =
            ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
        self.command(node, &words);
    }

    pub(super) fn introduce(&self, node: usize, other: usize) {
        let [port, bus] = self.group.addresses(other);
        self.command(node, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus.to_string()]);
    }

    /// Makes a node that owns nothing a replica, as soon as it has heard of its master.
    pub(super) fn follow(&self, node: usize, master: usize) {
        wait("a replica that knows its master", || {
            self.group.answer(node, &[&["CLUSTER", "REPLICATE", &self.ids[master]]]).ok()
        });
    }

    fn is_settled(&self) -> bool {
        let present: Vec<_> = self.members().filter(|&node| self.group.is_present(node)).collect();
        let members: BTreeSet<_> = self.members().map(|node| &self.ids[node]).collect();
        let views: Option<Vec<_>> = present.iter().map(|&node| self.view(node)).collect();
        let Some(views) = views else { return false };
        let roles = |view: &Vec<Known>| {
            let of_members = view.iter().filter(|known| members.contains(&known.id));
            of_members.map(Known::role).collect()
        };
        let all: BTreeSet<BTreeSet<Role>> = views.iter().map(roles).collect();
        let is_up =
            |known: &Known| !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| known.is(flag));
        let sees_all = |view: &Vec<Known>| {
            let sees = |&node: &usize| view.iter().any(|known| known.id == self.ids[node] && is_up(known));
            present.iter().all(sees)
        };
        all.len() == 1
            && all.iter().all(|roles| roles.len() == members.len())
            && views.iter().all(sees_all)
            && present.iter().all(|&node| self.serves(node))
    }

    /// Whether a node takes the cluster for whole, and follows its master if it is a replica.
    pub(super) fn serves(&self, node: usize) -> bool {
        let info = self.group.look(node, &["CLUSTER", "INFO"]).unwrap_or_default();
        let follows = || self.group.is_master(node) || self.group.follows(node).is_some();
        info.iter().any(|line| line.trim_end() == "cluster_state:ok") && follows()
    }
}

fn arguments(options: RedisClusterOptions<'_>) -> Vec<String> {
    let timeout = options.node_timeout.as_millis().to_string();
    let mut arguments = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout];
    arguments.extend(["--repl-diskless-sync-delay", "0"]);
    if let Some(password) = options.password {
        arguments.extend(["--requirepass", password, "--masterauth", password]);
    }
    arguments.extend(options.arguments);
    arguments.into_iter().map(str::to_owned).collect()
}

/// Where a node's fellows come in: a free port, which before 7.0 is at a certain distance from its own.
fn choose_bus(node: &mut RedisNode) -> u16 {
    if takes_a_bus_port(&node.program()) {
        let bus = free_port();
        node.arguments.extend(["--cluster-port".to_owned(), bus.to_string()]);
        return bus;
    }
    while TcpListener::bind(("127.0.0.1", node.port + BUS_DISTANCE)).is_err() {
        node.port = free_port();
    }
    node.port + BUS_DISTANCE
}

fn takes_a_bus_port(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {program}: {error}: run setup/debian"));
    let version_text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Such as `Redis server v=7.0.15 sha=...`.
    let version =
        version_text.split_once("v=").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|version| version >= 7)
}

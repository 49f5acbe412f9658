//! A private Redis Cluster.

use std::{collections::BTreeSet, net::TcpListener, process::Command, time::Duration};

#[cfg(feature = "tls")]
use super::redis_tls::{Bus, encrypt};
use super::{
    child::free_port,
    cluster::poll_for,
    redis_cluster_view::{KnownNode, Role, parse_nodes},
    redis_group::{RedisGroup, poll_until},
    redis_node::RedisNode,
    redis_wire::RedisAnswer,
};

/// The number of slots.
pub(super) const SLOTS: u16 = 16_384;
/// How long a change of the owner of slots may take if other changes delay it: several times the 5 s that a planned
/// change may take.
pub(super) const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// The distance from a node's port to its bus port, which cannot be chosen before Redis 7.0.
const BUS_DISTANCE: u16 = 10_000;

/// The options of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct RedisClusterOptions<'a> {
    /// The number of masters that share the slots. They are the nodes from 0 on.
    pub masters: usize,
    /// The number of replicas. They are the nodes after the masters. The masters get replicas in turn, one at a time.
    pub replicas: usize,
    /// How long a node may fail to answer before it is considered down (`cluster-node-timeout`).
    pub node_timeout: Duration,
    /// The password that clients and other nodes need.
    pub password: Option<&'a str>,
    /// Further arguments of `redis-server`.
    pub arguments: &'a [&'a str],
    /// Whether each node has a separate clock.
    pub clocks: bool,
    /// Whether nodes also accept encrypted connections, of clients with a certificate signed by the nodes' authority,
    /// and encrypt the connections between them.
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

/// How a replica takes over from its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisFailover {
    /// With the agreement of the master. No data is lost.
    Plain,
    /// Without the agreement of the master, but with the agreement of the other masters.
    Force,
    /// Without the agreement of any node: slots have two owners until the other nodes learn of the change.
    Takeover,
}

/// A private Redis Cluster. The node numbers are in this order: masters, their replicas, added nodes. The connections
/// between nodes go through proxies in the test's process.
pub struct RedisCluster {
    pub(super) group: RedisGroup,
    /// The cluster's id of each node, by node number.
    pub(super) ids: Vec<String>,
    /// The numbers of the nodes that were removed from the cluster.
    pub(super) removed: BTreeSet<usize>,
    password: Option<String>,
    arguments: Vec<String>,
    /// Whether each node has a separate clock.
    clocks: bool,
    /// The ports for encrypted connections, if there are any.
    #[cfg(feature = "tls")]
    tls: Option<Vec<u16>>,
}

impl RedisCluster {
    /// Starts a cluster of three masters and three replicas with a short node timeout.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(RedisClusterOptions::default())
    }

    /// Starts a cluster, and waits until all nodes serve and know each other.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start_with(options: RedisClusterOptions<'_>) -> Self {
        let mut cluster = Self {
            group: RedisGroup::new(),
            ids: Vec::new(),
            removed: BTreeSet::new(),
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
        (0..size).for_each(|_| cluster.start_node());
        (0..options.masters).for_each(|node| cluster.assign_slot_share(node, options.masters));
        let pairs = (0..size).flat_map(|node| (0..node).map(move |other| (node, other)));
        pairs.for_each(|(node, other)| cluster.meet(node, other));
        (options.masters..size).for_each(|node| cluster.make_replica(node, node % options.masters));
        cluster.wait_until_stable();
        cluster
    }

    /// The URL with all nodes that were not removed, and the password.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let members = self.members().map(|node| format!("127.0.0.1:{}", self.group.port(node)));
        format!("redis+cluster://{user}{}", members.collect::<Vec<_>>().join(","))
    }

    /// The ports of the nodes by number, including removed nodes.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.group.indices().map(|node| self.group.port(node)).collect()
    }

    /// The ports for encrypted connections, by node number.
    ///
    /// # Panics
    /// If there are no such ports.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_ports(&self) -> &[u16] {
        self.tls.as_deref().expect("the nodes take encrypted connections")
    }

    /// A file of encrypted servers, as for [`RedisServer`](super::RedisServer::certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.group.directory().join(name)
    }

    /// The id of a node.
    #[must_use]
    pub fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// Waits until all nodes that are neither killed, paused nor cut off agree on ids, masters and slots, and serve,
    /// and until replicas follow their masters.
    ///
    /// # Panics
    /// If the nodes do not agree in time, for instance because a slot has no owner.
    pub fn wait_until_stable(&self) {
        poll_until("a cluster that agrees", || self.is_stable().then_some(()));
    }

    /// Whether a node reports that it is a master. `false` for a node that is killed, paused or cut off.
    #[must_use]
    pub fn is_master(&self, node: usize) -> bool {
        self.group.is_master(node)
    }

    /// Makes a replica the master in place of its present master, as an operator does (`CLUSTER FAILOVER`). Waits until
    /// the replica reports that it is a master.
    ///
    /// # Errors
    /// The error of the replica; or a text that says that the replica accepted the command but did not become a master,
    /// because its master does not answer or the other masters gave it no vote.
    pub fn failover(&mut self, replica: usize, how: RedisFailover) -> Result<(), String> {
        let words: &[&str] = match how {
            RedisFailover::Plain => &["CLUSTER", "FAILOVER"],
            RedisFailover::Force => &["CLUSTER", "FAILOVER", "FORCE"],
            RedisFailover::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        };
        self.group.answer(replica, &[words])?;
        // This reads the role also of a replica that is cut off, because such a replica may become a master too.
        let role = || self.group.answer(replica, &[&["ROLE"]]).ok();
        let promoted = poll_for(CHANGE_LIMIT, || role().filter(|role| role[0] == "master"));
        promoted.map(drop).ok_or_else(|| format!("node {replica} is no master after {CHANGE_LIMIT:?}"))
    }

    /// Kills a node. The node keeps its view of the cluster, and the data that it saved. It saved no data unless the
    /// arguments ask for persistence.
    pub fn kill(&mut self, node: usize) {
        self.group.kill(node);
    }

    /// Starts a node again and waits until it has read its data.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.group.start(node);
    }

    /// Suspends a node's process until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn pause(&mut self, node: usize) {
        self.group.pause(node);
    }

    /// Resumes a node's process. The node catches up by itself.
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn resume(&mut self, node: usize) {
        self.group.resume(node);
    }

    /// Cuts a node off from the other nodes, until [`heal`](Self::heal): the connections between it and them end. Its
    /// clients still reach it. If it is a master, it serves them until the node timeout has passed.
    pub fn cut(&mut self, node: usize) {
        self.group.cut(node);
    }

    /// Like [`cut`](Self::cut), but only cuts the two nodes off from each other, until one of them is healed.
    pub fn cut_between(&mut self, nodes: [usize; 2]) {
        self.group.cut_between(nodes);
    }

    /// Reconnects a node to all other nodes that are not cut off themselves.
    pub fn heal(&mut self, node: usize) {
        self.group.heal(node);
    }

    /// Sets a node's clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the node has no separate clock.
    pub fn set_clock(&self, node: usize, seconds: i64) {
        self.group.set_clock(node, seconds);
    }

    /// Sends a node a command and returns the lines of the reply.
    ///
    /// # Panics
    /// If the command fails or gets no answer.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.group.command(node, words)
    }

    /// Like [`command`](Self::command), but returns any reply, including a redirection to another node.
    ///
    /// # Errors
    /// The error of the node, or the reason why there is no answer.
    pub fn answer(&self, node: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(node, &[words])
    }

    /// Like [`answer`](Self::answer), after `ASKING` on the same connection.
    ///
    /// # Errors
    /// The error of the node, or the reason why there is no answer.
    pub fn asking(&self, node: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(node, &[&["ASKING"], words])
    }

    /// The password for clients.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The nodes that were not removed.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        self.group.indices().filter(|node| !self.removed.contains(node))
    }

    /// The view of the cluster that a node has. `None`: the node is killed, paused or cut off, or does not answer.
    pub(super) fn view(&self, node: usize) -> Option<Vec<KnownNode>> {
        self.group.query(node, &["CLUSTER", "NODES"]).map(|lines| parse_nodes(&lines))
    }

    /// Starts a further node, which knows no other node.
    pub(super) fn start_node(&mut self) {
        let mut node = RedisNode::new(self.arguments.clone());
        let bus_port = choose_bus_port(&mut node);
        #[cfg(feature = "tls")]
        if let Some(ports) = &mut self.tls {
            ports.push(encrypt(&mut node, self.group.directory(), "server", Bus::Encrypted));
        }
        if self.clocks {
            node.add_clock();
        }
        let index = self.group.add_node(node, self.password.as_deref(), &[bus_port]);
        self.group.start(index);
        self.ids.push(self.command(index, &["CLUSTER", "MYID"]).concat());
        // Gives each node a different epoch. Nodes with equal epochs would have to resolve the conflict first.
        let epoch = self.group.len().to_string();
        self.command(index, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
    }

    /// Makes a master the owner of its share of the slots. All masters get equally many slots.
    fn assign_slot_share(&self, node: usize, masters: usize) {
        let first_slot = |index: usize| usize::from(SLOTS) * index / masters;
        let slots: Vec<_> = (first_slot(node)..first_slot(node + 1)).map(|slot| slot.to_string()).collect();
        let words: Vec<_> =
            ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
        self.command(node, &words);
    }

    /// Tells a node the address of another node.
    pub(super) fn meet(&self, node: usize, other: usize) {
        let [port, bus_port] = self.group.ports(other);
        self.command(node, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus_port.to_string()]);
    }

    /// Waits until a node without slots knows its future master, and makes the node a replica of this master.
    pub(super) fn make_replica(&self, node: usize, master: usize) {
        poll_until("a replica that knows its master", || {
            self.group.answer(node, &[&["CLUSTER", "REPLICATE", &self.ids[master]]]).ok()
        });
    }

    /// Whether all nodes that are neither killed, paused nor cut off know the same members with the same roles, and
    /// serve.
    fn is_stable(&self) -> bool {
        let present: Vec<_> = self.members().filter(|&node| self.group.is_present(node)).collect();
        let members: BTreeSet<_> = self.members().map(|node| &self.ids[node]).collect();
        let views: Option<Vec<_>> = present.iter().map(|&node| self.view(node)).collect();
        let Some(views) = views else { return false };
        let roles = |view: &Vec<KnownNode>| {
            let known_members = view.iter().filter(|known| members.contains(&known.id));
            known_members.map(KnownNode::role).collect()
        };
        let distinct_views: BTreeSet<BTreeSet<Role>> = views.iter().map(roles).collect();
        let is_up =
            |known: &KnownNode| !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| known.is(flag));
        let sees_all = |view: &Vec<KnownNode>| {
            let sees_node =
                |&node: &usize| view.iter().any(|known| known.id == self.ids[node] && is_up(known));
            present.iter().all(sees_node)
        };
        distinct_views.len() == 1
            && distinct_views.iter().all(|roles| roles.len() == members.len())
            && views.iter().all(sees_all)
            && present.iter().all(|&node| self.serves(node))
    }

    /// Whether a node reports that the cluster is up, and is a master or is connected to its master.
    pub(super) fn serves(&self, node: usize) -> bool {
        let info = self.group.query(node, &["CLUSTER", "INFO"]).unwrap_or_default();
        let is_master_or_follows = || self.group.is_master(node) || self.group.master_port(node).is_some();
        info.iter().any(|line| line.trim_end() == "cluster_state:ok") && is_master_or_follows()
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

/// Chooses the bus port (the port for other nodes of the cluster). From Redis 7.0 on, it is a free port. Before 7.0 it
/// has a fixed distance from the node's port: if that bus port is not free, this function also gives the node another
/// port.
fn choose_bus_port(node: &mut RedisNode) -> u16 {
    if has_bus_port_option(&node.program()) {
        let bus_port = free_port();
        node.arguments.extend(["--cluster-port".to_owned(), bus_port.to_string()]);
        return bus_port;
    }
    while TcpListener::bind(("127.0.0.1", node.port + BUS_DISTANCE)).is_err() {
        node.port = free_port();
    }
    node.port + BUS_DISTANCE
}

fn has_bus_port_option(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {program}: {error}: run setup/debian"));
    let version_text = String::from_utf8_lossy(&output.stdout).into_owned();
    // For example `Redis server v=7.0.15 sha=...`.
    let version =
        version_text.split_once("v=").and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|version| version >= 7)
}

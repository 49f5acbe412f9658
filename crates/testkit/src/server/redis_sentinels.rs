//! A private Redis of a master and two replicas, watched by three Sentinels.

#[cfg(feature = "tls")]
use super::redis_tls::{Bus, encrypt};
use super::{
    redis_group::{RedisGroup, poll_until},
    redis_node::RedisNode,
    redis_sentinel_options::{MAJORITY, MASTER, RedisSentinelOptions, data_node, sentinel_lines},
    redis_wire::RedisAnswer,
};

/// The number of nodes with data.
const NODES: usize = 3;
/// The number of Sentinels: the smallest number at which a majority is left when one Sentinel is lost.
const SENTINELS: usize = 3;

/// A private Redis: a master, two replicas, and three Sentinels, which replace a lost master. At first, node 0 is the
/// master. Nodes save their configuration, as in production. So a killed node that is restarted has its last role
/// again. If another node has become the master meanwhile, Sentinels make the restarted node a replica some ten seconds
/// later.
pub struct RedisSentinels {
    /// The nodes, then the Sentinels.
    group: RedisGroup,
    sentinel_password: Option<String>,
    password: Option<String>,
    /// The ports for encrypted connections, if there are any.
    #[cfg(feature = "tls")]
    tls: Vec<u16>,
}

impl RedisSentinels {
    /// Starts the nodes, with Sentinels that react quickly.
    ///
    /// # Panics
    /// If the servers cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(RedisSentinelOptions::default())
    }

    /// Starts the nodes and the Sentinels, and waits until all of them know each other.
    ///
    /// # Panics
    /// If the servers cannot be started.
    #[must_use]
    pub fn start_with(options: RedisSentinelOptions<'_>) -> Self {
        let mut group = RedisGroup::new();
        #[cfg(feature = "tls")]
        let (mut tls, certificates) = (Vec::new(), group.directory().to_owned());
        #[cfg(feature = "tls")]
        super::certificates::write(&certificates);
        #[cfg(feature = "tls")]
        let mut encrypted = |node: &mut RedisNode| {
            if options.tls {
                tls.push(encrypt(node, &certificates, "server", Bus::Plain));
            }
        };
        #[cfg(not(feature = "tls"))]
        let encrypted = |_: &mut RedisNode| {};
        for index in 0..NODES {
            let mut node = data_node(index.checked_sub(1).map(|_| group.port(0)), options);
            encrypted(&mut node);
            group.add_node(node, options.password, &[]);
        }
        let sentinels: Vec<_> =
            (0..SENTINELS).map(|_| RedisNode::new(vec!["--sentinel".to_owned()])).collect();
        let node_ports: Vec<_> = group.indices().map(|node| group.port(node)).collect();
        let sentinel_ports: Vec<_> = sentinels.iter().map(|node| node.port).collect();
        for mut node in sentinels {
            node.configure(&sentinel_lines(node.port, &sentinel_ports, &node_ports, options));
            encrypted(&mut node);
            group.add_node(node, options.sentinel_password, &[]);
        }
        (0..NODES).for_each(|node| group.start(node));
        let first_master_port = group.port(0).to_string();
        poll_until("replicas", || {
            (1..NODES).all(|node| group.master_port(node).as_ref() == Some(&first_master_port)).then_some(())
        });
        (NODES..NODES + SENTINELS).for_each(|member| group.start(member));
        let [password, sentinel_password] =
            [options.password, options.sentinel_password].map(|password| password.map(str::to_owned));
        let sentinels = Self {
            group,
            sentinel_password,
            password,
            #[cfg(feature = "tls")]
            tls,
        };
        sentinels.wait_until_stable();
        sentinels
    }

    /// The URL with all Sentinels, the name of the master and the password of the nodes, but not that of the Sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let hosts = self.sentinel_ports().map(|port| format!("127.0.0.1:{port}")).join(",");
        format!("redis+sentinel://{user}{hosts}/{MASTER}")
    }

    /// The name by which Sentinels know the current master.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        MASTER
    }

    /// The password for clients of the Sentinels.
    #[must_use]
    pub fn sentinel_password(&self) -> Option<&str> {
        self.sentinel_password.as_deref()
    }

    /// The ports of the nodes.
    #[must_use]
    pub fn ports(&self) -> [u16; NODES] {
        std::array::from_fn(|node| self.group.port(node))
    }

    /// The ports of the Sentinels.
    #[must_use]
    pub fn sentinel_ports(&self) -> [u16; SENTINELS] {
        std::array::from_fn(|sentinel| self.group.port(NODES + sentinel))
    }

    /// The ports for encrypted connections, of the nodes and of the Sentinels.
    ///
    /// # Panics
    /// If there are no such ports.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_ports(&self) -> (&[u16], &[u16]) {
        assert!(!self.tls.is_empty(), "they take encrypted connections");
        self.tls.split_at(NODES)
    }

    /// A file of encrypted servers, as for [`RedisServer`](super::RedisServer::certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.group.directory().join(name)
    }

    /// Waits until a majority of all Sentinels names the same master, and returns the number of this master. Sentinels
    /// that are killed, paused or cut off name none. The master itself must be present and report that it is a master.
    ///
    /// # Panics
    /// If there is no such master, for instance because fewer than two Sentinels are left.
    #[must_use]
    pub fn master(&self) -> usize {
        poll_until("a master", || self.agreed_master())
    }

    /// Waits until all processes that are neither killed, paused nor cut off are in their normal state: there is a
    /// master, the replicas follow it, and the Sentinels consider all of these nodes up. After a fail-over this takes
    /// some ten seconds, until the old master has become a replica.
    ///
    /// # Panics
    /// If the processes do not reach their normal state in time.
    pub fn wait_until_stable(&self) {
        poll_until("nodes and Sentinels that agree", || self.is_stable().then_some(()));
    }

    /// The node that a Sentinel names as the master, even if the Sentinel is cut off. `None`: the Sentinel names no
    /// node.
    #[must_use]
    pub fn master_named_by(&self, sentinel: usize) -> Option<usize> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        let answer = self.group.answer(NODES + sentinel, &[&words]).ok()?;
        self.group.member_with_port(answer.get(1)?)
    }

    /// Makes another node the master, as an operator does (`SENTINEL FAILOVER`). Waits until a majority of Sentinels
    /// names this node, and returns its number. The old master accepts writes for some ten seconds more.
    ///
    /// # Panics
    /// If no other node can become the master.
    pub fn failover(&mut self) -> usize {
        let old_master = self.master();
        let member = (NODES..self.group.len()).find(|&member| self.group.is_present(member));
        let sentinel_member = member.expect("a majority of Sentinels is there");
        poll_until("another master", || {
            // On a busy machine a fail-over may get too few votes and fail. Then it is started again.
            if self.master_named_by(sentinel_member - NODES) == Some(old_master) {
                match self.group.answer(sentinel_member, &[&["SENTINEL", "FAILOVER", MASTER]]) {
                    Ok(_) => {}
                    // The Sentinel does not know the replicas yet, or is still busy with the previous fail-over.
                    Err(error) if ["NOGOODSLAVE", "INPROG"].iter().any(|code| error.starts_with(code)) => {}
                    Err(error) => panic!("SENTINEL FAILOVER: {error}"),
                }
            }
            self.agreed_master().filter(|master| *master != old_master)
        })
    }

    /// Exchanges the roles of a replica and the master without Sentinels (`FAILOVER`, Redis 6.2 or later), and waits
    /// until both have changed their roles. No connection ends. Sentinels are not told of the change, and may undo it.
    ///
    /// # Panics
    /// If the master refuses, or there is none.
    pub fn failover_without_sentinels(&mut self, replica: usize) {
        let master = self.master();
        let port = self.group.port(replica).to_string();
        poll_until("the replica online", || {
            let words = ["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "10000"];
            match self.group.answer(data_member(master), &[&words]) {
                Ok(_) => Some(()),
                // The replica has not confirmed yet to the master that it has all data.
                Err(error) if error.contains("is not online") => None,
                Err(error) => panic!("FAILOVER: {error}"),
            }
        });
        poll_until("the replica as master", || {
            (self.group.is_master(replica) && !self.group.is_master(master)).then_some(())
        });
    }

    /// Makes a node a second master by force (`REPLICAOF NO ONE`). Sentinels make the node a replica again some ten
    /// seconds later.
    ///
    /// # Panics
    /// If the node does not answer.
    pub fn promote(&mut self, node: usize) {
        self.command(node, &["REPLICAOF", "NO", "ONE"]);
    }

    /// Kills a node. The node keeps the data that it saved. It saved no data unless the arguments ask for persistence.
    pub fn kill(&mut self, node: usize) {
        self.group.kill(data_member(node));
    }

    /// Starts a node again and waits until it has read its data.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self, node: usize) {
        self.group.start(data_member(node));
    }

    /// Suspends a node's process until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn pause(&mut self, node: usize) {
        self.group.pause(data_member(node));
    }

    /// Resumes a node's process. A former master still acts as a master until Sentinels reconfigure it.
    ///
    /// # Panics
    /// If the node was killed and not restarted.
    pub fn resume(&mut self, node: usize) {
        self.group.resume(data_member(node));
    }

    /// Cuts a node off from the Sentinels and the other nodes, until [`heal`](Self::heal): the connections between them
    /// end. Its clients still reach it. A master that is cut off does not learn that another node replaced it.
    pub fn cut(&mut self, node: usize) {
        self.group.cut(data_member(node));
    }

    /// Cuts two nodes off from each other, until one of them is healed. The Sentinels reach both.
    pub fn cut_between(&mut self, nodes: [usize; 2]) {
        self.group.cut_between(nodes.map(data_member));
    }

    /// Reconnects a node to all other nodes that are not cut off themselves.
    pub fn heal(&mut self, node: usize) {
        self.group.heal(data_member(node));
    }

    /// Like [`kill`](Self::kill), for a Sentinel. The Sentinel keeps its state.
    pub fn kill_sentinel(&mut self, sentinel: usize) {
        self.group.kill(NODES + sentinel);
    }

    /// Starts a Sentinel again and waits until it answers.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart_sentinel(&mut self, sentinel: usize) {
        self.group.start(NODES + sentinel);
    }

    /// Like [`pause`](Self::pause), for a Sentinel.
    ///
    /// # Panics
    /// If the Sentinel was killed and not restarted.
    pub fn pause_sentinel(&mut self, sentinel: usize) {
        self.group.pause(NODES + sentinel);
    }

    /// Resumes a Sentinel's process. A Sentinel that was paused for more than two seconds answers, but takes no part in
    /// fail-overs for thirty seconds (TILT).
    ///
    /// # Panics
    /// If the Sentinel was killed and not restarted.
    pub fn resume_sentinel(&mut self, sentinel: usize) {
        self.group.resume(NODES + sentinel);
    }

    /// Cuts a Sentinel off from the other Sentinels and the nodes, until [`heal_sentinel`](Self::heal_sentinel).
    /// Clients still reach the Sentinel. It still names the master that it knew before.
    pub fn cut_sentinel(&mut self, sentinel: usize) {
        self.group.cut(NODES + sentinel);
    }

    /// Like [`heal`](Self::heal), for a Sentinel.
    pub fn heal_sentinel(&mut self, sentinel: usize) {
        self.group.heal(NODES + sentinel);
    }

    /// Sets a node's clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the node has no separate clock.
    pub fn set_clock(&self, node: usize, seconds: i64) {
        self.group.set_clock(data_member(node), seconds);
    }

    /// Sends a node a command and returns the lines of the reply.
    ///
    /// # Panics
    /// If the command fails or gets no answer.
    pub fn command(&self, node: usize, words: &[&str]) -> Vec<String> {
        self.group.command(data_member(node), words)
    }

    /// Like [`command`](Self::command), but returns any reply.
    ///
    /// # Errors
    /// The error of the node, or the reason why there is no answer.
    pub fn answer(&self, node: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(data_member(node), &[words])
    }

    /// Sends a Sentinel a command, such as `SENTINEL MASTERS`, and returns the lines of the reply.
    ///
    /// # Panics
    /// If the command fails or gets no answer.
    pub fn sentinel_command(&self, sentinel: usize, words: &[&str]) -> Vec<String> {
        self.group.command(NODES + sentinel, words)
    }

    /// Like [`sentinel_command`](Self::sentinel_command), but returns any reply.
    ///
    /// # Errors
    /// The error of the Sentinel, or the reason why there is no answer.
    pub fn sentinel_answer(&self, sentinel: usize, words: &[&str]) -> RedisAnswer {
        self.group.answer(NODES + sentinel, &[words])
    }

    /// The master that a majority of Sentinels names and that reports that it is a master.
    fn agreed_master(&self) -> Option<usize> {
        let sentinels = (0..SENTINELS).filter(|sentinel| self.group.is_present(NODES + sentinel));
        let named: Vec<_> = sentinels.filter_map(|sentinel| self.master_named_by(sentinel)).collect();
        let votes = |node: usize| named.iter().filter(|&&other| other == node).count();
        (0..NODES).find(|&node| votes(node) >= MAJORITY && self.group.is_master(node))
    }

    /// Whether all present processes are in their normal state.
    fn is_stable(&self) -> bool {
        let Some(master) = self.agreed_master() else { return false };
        let port = self.group.port(master).to_string();
        let replicas = (0..NODES).filter(|&node| node != master && self.group.is_present(node));
        let follows_master = |node| self.group.master_port(node).as_ref() == Some(&port);
        let mut sentinels = (0..SENTINELS).filter(|sentinel| self.group.is_present(NODES + sentinel));
        replicas.clone().all(follows_master)
            && sentinels.all(|sentinel| self.sees_up(sentinel, &port, replicas.clone().count()))
    }

    /// Whether a Sentinel considers this master up, and considers this number of its replicas up.
    fn sees_up(&self, sentinel: usize, master: &str, replicas: usize) -> bool {
        let ask = |what| self.group.query(NODES + sentinel, &["SENTINEL", what, MASTER]).unwrap_or_default();
        let values = |reply: &[String], name: &str| -> Vec<String> {
            reply.windows(2).filter(|pair| pair[0] == name).map(|pair| pair[1].clone()).collect()
        };
        let (master_reply, replica_replies) = (ask("MASTER"), ask("REPLICAS"));
        let replicas_up = values(&replica_replies, "flags").iter().filter(|flags| *flags == "slave").count();
        values(&master_reply, "port") == [master]
            && values(&master_reply, "flags") == ["master"]
            && replicas_up >= replicas
    }
}

/// The index in the group of a node (not a Sentinel).
fn data_member(node: usize) -> usize {
    assert!(node < NODES, "there are {NODES} nodes");
    node
}

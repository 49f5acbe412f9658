//! How a private Redis with Sentinels is started.

use std::time::Duration;

use super::redis_node::RedisNode;

/// How many of them make a majority, and the quorum.
pub(super) const MAJORITY: usize = 2;
/// What they call the nodes together.
pub(super) const MASTER: &str = "mymaster";

/// How the nodes and their Sentinels are started.
#[derive(Clone, Copy, Debug)]
pub struct RedisSentinelOptions<'a> {
    /// After how long a Sentinel takes a node that does not answer for down.
    pub down_after: Duration,
    /// How long a fail-over may wait for replicas, and half of how long after one that failed the next is tried.
    pub failover_timeout: Duration,
    /// What the nodes want from clients, Sentinels and each other.
    pub password: Option<&'a str>,
    /// What the Sentinels want from clients and each other.
    pub sentinel_password: Option<&'a str>,
    /// More arguments of `redis-server` for the nodes.
    pub arguments: &'a [&'a str],
    /// Whether each node has a clock of its own.
    pub clocks: bool,
    /// Whether nodes and Sentinels take encrypted connections too, of clients with a certificate of their authority. Sentinels name the
    /// nodes' other ports all the same.
    #[cfg(feature = "tls")]
    pub tls: bool,
}

impl Default for RedisSentinelOptions<'_> {
    fn default() -> Self {
        Self {
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(3),
            password: None,
            sentinel_password: None,
            arguments: &[],
            clocks: false,
            #[cfg(feature = "tls")]
            tls: false,
        }
    }
}

/// A node, that follows the master with this port at first, if there is one.
pub(super) fn data_node(master: Option<u16>, options: RedisSentinelOptions<'_>) -> RedisNode {
    let mut arguments = vec!["--repl-diskless-sync-delay", "0"];
    if let Some(password) = options.password {
        arguments.extend(["--requirepass", password, "--masterauth", password]);
    }
    arguments.extend(options.arguments);
    let mut node = RedisNode::new(arguments.into_iter().map(str::to_owned).collect());
    let follow = master.map(|port| format!("replicaof 127.0.0.1 {port}"));
    node.configure(follow.as_slice());
    if options.clocks {
        node.with_clock();
    }
    node
}

/// Sentinels that know each other and the replicas from the beginning: by themselves they need some seconds to hear of them.
pub(super) fn sentinel_lines(
    port: u16,
    all: &[u16],
    nodes: &[u16],
    options: RedisSentinelOptions<'_>,
) -> Vec<String> {
    let id = |port: u16| format!("{port:040x}");
    let mut lines = vec![
        format!("sentinel myid {}", id(port)),
        format!("sentinel monitor {MASTER} 127.0.0.1 {} {MAJORITY}", nodes[0]),
        format!("sentinel down-after-milliseconds {MASTER} {}", options.down_after.as_millis()),
        format!("sentinel failover-timeout {MASTER} {}", options.failover_timeout.as_millis()),
    ];
    lines.extend(options.password.map(|password| format!("sentinel auth-pass {MASTER} {password}")));
    lines.extend(options.sentinel_password.map(|password| format!("requirepass {password}")));
    let replica = |port| format!("sentinel known-replica {MASTER} 127.0.0.1 {port}");
    lines.extend(nodes[1..].iter().map(replica));
    let others = all.iter().filter(|&&other| other != port);
    lines.extend(
        others.map(|&other| format!("sentinel known-sentinel {MASTER} 127.0.0.1 {other} {}", id(other))),
    );
    lines
}

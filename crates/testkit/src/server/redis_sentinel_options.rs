//! The options of a private Redis with Sentinels.

use std::time::Duration;

use super::redis_node::RedisNode;

/// The number of Sentinels in a majority. The quorum of the configuration has the same value.
pub(super) const MAJORITY: usize = 2;
/// The name of the master in the Sentinels' configuration.
pub(super) const MASTER: &str = "mymaster";

/// The options of the nodes and their Sentinels.
#[derive(Clone, Copy, Debug)]
pub struct RedisSentinelOptions<'a> {
    /// How long a node may fail to answer before a Sentinel considers it down.
    pub down_after: Duration,
    /// How long a fail-over may wait for replicas. After a failed fail-over, the next one begins after twice this time.
    pub failover_timeout: Duration,
    /// The password that clients, Sentinels and other nodes need.
    pub password: Option<&'a str>,
    /// The password that clients and other Sentinels need at a Sentinel.
    pub sentinel_password: Option<&'a str>,
    /// Further arguments of `redis-server` for the nodes.
    pub arguments: &'a [&'a str],
    /// Whether each node has a separate clock.
    pub clocks: bool,
    /// Whether nodes and Sentinels also accept encrypted connections, of clients with a certificate signed by their
    /// authority. Sentinels still report the ports without encryption.
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

/// A node with data. If `master` is a port, the node at first follows the master at this port.
pub(super) fn data_node(master: Option<u16>, options: RedisSentinelOptions<'_>) -> RedisNode {
    let mut arguments = vec!["--repl-diskless-sync-delay", "0"];
    if let Some(password) = options.password {
        arguments.extend(["--requirepass", password, "--masterauth", password]);
    }
    arguments.extend(options.arguments);
    let mut node = RedisNode::new(arguments.into_iter().map(str::to_owned).collect());
    let replicaof_line = master.map(|port| format!("replicaof 127.0.0.1 {port}"));
    node.configure(replicaof_line.as_slice());
    if options.clocks {
        node.add_clock();
    }
    node
}

/// The configuration of a Sentinel that knows the others and the replicas from the start. With a shorter configuration,
/// a Sentinel needs some seconds to discover them.
pub(super) fn sentinel_lines(
    port: u16,
    sentinel_ports: &[u16],
    node_ports: &[u16],
    options: RedisSentinelOptions<'_>,
) -> Vec<String> {
    let id = |port: u16| format!("{port:040x}");
    let mut lines = vec![
        format!("sentinel myid {}", id(port)),
        format!("sentinel monitor {MASTER} 127.0.0.1 {} {MAJORITY}", node_ports[0]),
        format!("sentinel down-after-milliseconds {MASTER} {}", options.down_after.as_millis()),
        format!("sentinel failover-timeout {MASTER} {}", options.failover_timeout.as_millis()),
    ];
    lines.extend(options.password.map(|password| format!("sentinel auth-pass {MASTER} {password}")));
    lines.extend(options.sentinel_password.map(|password| format!("requirepass {password}")));
    let replica = |port| format!("sentinel known-replica {MASTER} 127.0.0.1 {port}");
    lines.extend(node_ports[1..].iter().map(replica));
    let others = sentinel_ports.iter().filter(|&&other| other != port);
    lines.extend(
        others.map(|&other| format!("sentinel known-sentinel {MASTER} 127.0.0.1 {other} {}", id(other))),
    );
    lines
}

//! Fixture: independent masters and their clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, Inspect, Locks, Name, View};
use leasehold_redis::{Address, Config, RedlockConfig, RedlockEngine};
use leasehold_testkit::server::{Proxy, RedisServer};

use crate::rig::{PATIENCE, local};

/// How many seconds the nodes' clocks are ahead. The nodes seem to have been running for that long, so that each has a
/// vote at once.
pub(crate) const AGE: i64 = 1_000_000;

/// The nodes and the configuration of their clients.
pub(crate) struct RedlockRig {
    pub(crate) nodes: Vec<RedisServer>,
    pub(crate) config: RedlockConfig,
    runtime: tokio::runtime::Runtime,
}

/// The configuration of the node at this port.
pub(crate) fn config_of_port(port: u16) -> Config {
    Config::new(Address::Tcp(local(port)))
}

impl RedlockRig {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, &[])
    }

    pub(crate) fn with(nodes: usize, arguments: &[&str]) -> Self {
        let nodes: Vec<_> = (0..nodes).map(|_| RedisServer::with_clock(arguments)).collect();
        nodes.iter().for_each(make_old);
        let config =
            RedlockConfig::new(nodes.iter().map(|node| config_of_port(node.port())).collect()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { nodes, config, runtime }
    }

    pub(crate) fn engine(&self) -> Arc<RedlockEngine> {
        Arc::new(RedlockEngine::new(self.config.clone(), &Env::system()))
    }

    /// A client that reaches each node through a proxy.
    pub(crate) fn proxied(&self) -> (Vec<Proxy>, RedlockConfig) {
        let proxies: Vec<_> = self.nodes.iter().map(|node| Proxy::start(node.port())).collect();
        let config =
            RedlockConfig::new(proxies.iter().map(|proxy| config_of_port(proxy.port())).collect()).unwrap();
        (proxies, config)
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.run(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// Sends a command to each node, and returns each reply as one line.
    pub(crate) fn command_all(&self, command: &[&str]) -> Vec<String> {
        self.nodes.iter().map(|node| node.command(command).join(" ")).collect()
    }

    /// Waits until `done` is true; panics after a long time.
    pub(crate) fn until(&self, condition: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {condition}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The keys that must not exist when no claim holds or waits.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let keys = self.nodes.iter().flat_map(|node| node.command(&["--raw", "KEYS", "*"]));
        keys.filter(|key| !key.is_empty() && !may_remain(key)).collect()
    }
}

/// Makes a node seem to have been running with its data for a long time.
pub(crate) fn make_old(node: &RedisServer) {
    node.set_clock(AGE);
    node.command(&["SET", "leasehold:{}B", "1 1000"]);
}

/// Whether a key may exist when no claim holds or waits: newest tokens, tombstones, and the time since which the node
/// has its data.
fn may_remain(key: &str) -> bool {
    let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
    kind.is_some_and(|(_, kind)| kind == "B" || kind.starts_with(['T', 'D']))
}

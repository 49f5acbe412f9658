//! Fixture: a Redis Cluster and its clients.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{Claim, Engine, Env, Grant, Hold, Inspect, Locks, Name, Previous, Release, View};
use leasehold_redis::{Config, RedisEngine};
use leasehold_testkit::server::{RedisCluster, RedisClusterOptions};

use crate::rig::{PATIENCE, claim_of, local};

/// A cluster and the configuration of its clients.
pub(crate) struct ClusterRig {
    cluster: Mutex<RedisCluster>,
    pub(crate) config: Config,
    /// Whether the clients use Redisson's layout, which does not accept every name on a cluster.
    pub(crate) redisson: bool,
    runtime: tokio::runtime::Runtime,
}

impl ClusterRig {
    /// Three masters and three replicas. The node timeout is long, so that a busy machine causes no fail-over.
    pub(crate) fn new() -> Self {
        Self::with(3, 3, &[])
    }

    pub(crate) fn with(masters: usize, replicas: usize, arguments: &[&str]) -> Self {
        let node_timeout = Duration::from_secs(5);
        let options =
            RedisClusterOptions { masters, replicas, node_timeout, arguments, ..Default::default() };
        Self::of(RedisCluster::start_with(options))
    }

    pub(crate) fn of(cluster: RedisCluster) -> Self {
        let seeds = cluster.ports().into_iter().map(local).collect();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { config: Config::cluster(seeds), redisson: false, cluster: Mutex::new(cluster), runtime }
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, RedisCluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> Arc<RedisEngine> {
        Arc::new(RedisEngine::new(self.config.clone(), &Env::system()))
    }

    /// A new client.
    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    /// The operator's view of a name.
    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.run(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// Runs a future on the runtime of the fixture.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Runtime {
        &self.runtime
    }

    /// An exclusive claim that may queue, with a long ttl.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        claim_of(name)
    }

    /// Waits until `done` is true; panics after a long time.
    pub(crate) fn until(&self, condition: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {condition}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The slot of a name, the node that owns the slot, and another master.
    pub(crate) fn slot_and_nodes(&self, name: &str) -> (u16, usize, usize) {
        let cluster = self.cluster();
        let slot = cluster.slot(&format!("lock:{name}"));
        let from = cluster.owner(slot);
        let to = (0..cluster.ports().len()).find(|&node| node != from && cluster.is_master(node)).unwrap();
        (slot, from, to)
    }

    /// The numbers of the masters.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let cluster = self.cluster();
        (0..cluster.ports().len()).filter(|&node| cluster.is_master(node)).collect()
    }

    /// The keys that must not exist when no claim holds or waits: see `Rig::leftovers`.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let has_content = "local c = redis.call('GET', KEYS[1])
            return (c:sub(1, 2) == '1 ' or cmsgpack.unpack(c).holder or cmsgpack.unpack(c).ended) and 1 or 0";
        let masters = self.masters();
        let cluster = self.cluster();
        let mut leftovers = Vec::new();
        for node in masters {
            for key in cluster.command(node, &["KEYS", "*"]) {
                let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
                let may_remain =
                    match kind.and_then(|(_, kind)| kind.strip_prefix('r').unwrap_or(kind).chars().next()) {
                        Some('c') => cluster.command(node, &["EVAL", has_content, "1", &key]).concat() == "1",
                        Some(kind) => matches!(kind, 'd' | 's' | 't'),
                        None => false,
                    };
                if !key.is_empty() && !may_remain {
                    leftovers.push(key);
                }
            }
        }
        leftovers
    }

    /// The number of calls of each command, summed over the masters.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let masters = self.masters();
        let cluster = self.cluster();
        let mut calls = BTreeMap::new();
        for node in masters {
            for line in cluster.command(node, &["INFO", "commandstats"]) {
                let Some((command, rest)) =
                    line.strip_prefix("cmdstat_").and_then(|rest| rest.split_once(":calls="))
                else {
                    continue;
                };
                let count: u64 = rest.split(',').next().unwrap().parse().unwrap();
                *calls.entry(command.to_owned()).or_default() += count;
            }
        }
        calls
    }
}

/// The hold of a granted claim, for a renewal.
pub(crate) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    let Claim { id, name, mode, ttl, .. } = claim.clone();
    Hold { id, name, mode, token: grant.token, ttl }
}

/// The clean release of a claim: by id and token, or without a grant only by id.
pub(crate) fn release_of(claim: &Claim, grant: Option<&Grant>) -> Release {
    let Claim { id, name, mode, .. } = claim.clone();
    Release { id, name, mode, token: grant.map(|grant| grant.token), ended: Previous::Clean, min_hold: None }
}

/// Claims a free name, and returns its grant.
pub(crate) async fn granted(engine: &RedisEngine, claim: &Claim) -> Grant {
    match engine.claim(claim, leasehold_core::How::Create).await {
        Ok(leasehold_core::Answer::Held(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

//! Fixture: a group of servers with Sentinels, and its clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Env, Inspect, Locks, Name, View};
use leasehold_redis::{Config, RedisEngine};
use leasehold_testkit::{
    server::{RedisSentinelOptions, RedisSentinels},
    suite::{Disturbance, Harness},
};

use crate::rig::{PATIENCE, leftovers};

/// The group and the configuration of its clients.
pub(crate) struct SentinelRig {
    pub(crate) redis: RedisSentinels,
    pub(crate) config: Config,
    pub(crate) runtime: tokio::runtime::Runtime,
}

/// Sentinels with a long time limit, so that a busy machine causes no fail-over.
pub(crate) fn late_failover() -> RedisSentinelOptions<'static> {
    RedisSentinelOptions { down_after: Duration::from_secs(5), ..RedisSentinelOptions::default() }
}

/// The configuration of a URL.
pub(crate) fn config_of(url: &str) -> Config {
    let (scheme, rest) = url.split_once(':').unwrap();
    Config::from_url(scheme, rest).unwrap()
}

pub(crate) fn locks_of(config: Config) -> Locks {
    Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build()
}

impl SentinelRig {
    pub(crate) fn new(options: RedisSentinelOptions<'_>) -> Self {
        let redis = RedisSentinels::start_with(options);
        let config = config_of(&redis.url());
        Self { redis, config, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    pub(crate) fn engine(&self) -> Arc<RedisEngine> {
        Arc::new(RedisEngine::new(self.config.clone(), &Env::system()))
    }

    pub(crate) fn locks(&self) -> Locks {
        locks_of(self.config.clone())
    }

    /// The operator's view of a name.
    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.runtime.block_on(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// Whether a node has a key.
    pub(crate) fn has(&self, node: usize, key: &str) -> bool {
        self.redis.command(node, &["EXISTS", key]) == ["1"]
    }

    /// Waits until `done` is true; panics after a long time.
    pub(crate) fn until(&self, condition: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {condition}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the replicas of a master have all of its data.
    pub(crate) fn replicate(&self, master: usize) {
        let key = "test:replicated";
        let value = format!("{:?}", std::time::Instant::now());
        self.redis.command(master, &["SET", key, &value, "PX", "1000"]);
        self.until("it is replicated", || {
            (0..3)
                .filter(|&node| node != master)
                .all(|node| self.redis.command(node, &["GET", key]) == [&*value] || !self.has(master, key))
        });
    }
}

impl Harness for SentinelRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { self.engine() as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => drop(self.redis.command(0, &["FLUSHALL"])),
            Disturbance::Cut => {
                drop(self.redis.command(0, &["CLIENT", "KILL", "TYPE", "normal"]));
                drop(self.redis.command(0, &["CLIENT", "KILL", "TYPE", "pubsub"]));
            }
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            let limit = tokio::time::Instant::now() + Duration::from_secs(80);
            loop {
                let leftover_keys = leftovers(|words| self.redis.command(0, words));
                if leftover_keys.is_empty() || tokio::time::Instant::now() > limit {
                    return leftover_keys;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

//! A server and its clients.

use std::sync::Arc;

use leasehold_core::Env;
use leasehold_redis::{Address, Config, RedisEngine};
use leasehold_testkit::server::RedisServer;

/// A server, and what its clients are told of it.
pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) config: Config,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let server = RedisServer::start(arguments);
        let config = Config::new(Address::Tcp { host: "127.0.0.1".to_owned(), port: server.port() });
        Self { server, config }
    }

    pub(crate) fn engine(&self) -> Arc<RedisEngine> {
        Arc::new(RedisEngine::new(self.config.clone(), &Env::system()))
    }

    /// Every key that should not be there at rest: the newest tokens stay for an hour, tombstones for seconds, and what is
    /// remembered of an unclean end for an hour.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut keys = self.server.command(&["--raw", "KEYS", "*"]);
        let lapses = |key: &str| {
            let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
            key == "leasehold:{}t" || kind.is_some_and(|(_, kind)| kind.starts_with(['c', 'd']))
        };
        keys.retain(|key| !key.is_empty() && !lapses(key));
        keys
    }
}

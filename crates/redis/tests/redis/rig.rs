//! Fixture: a server and its clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, Env, Inspect, Locks, Name, View};
use leasehold_redis::{Address, Config, RedisEngine};
pub(crate) use leasehold_testkit::rig::{AT_ONCE, PATIENCE, acquire, local};
use leasehold_testkit::{
    claims,
    server::{Proxy, RedisServer},
};

/// A server and the configuration of its clients.
pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) config: Config,
    /// The proxy that `config` leads to, if there is one.
    pub(crate) proxy: Option<Proxy>,
    runtime: tokio::runtime::Runtime,
}

/// An exclusive claim that may queue, with a long ttl.
pub(crate) fn claim_of(name: &str) -> Claim {
    claims::exclusive(name, Duration::from_secs(30))
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::of(RedisServer::start(arguments))
    }

    pub(crate) fn of(server: RedisServer) -> Self {
        let config = Config::new(Address::Tcp(local(server.port())));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { server, config, proxy: None, runtime }
    }

    /// From now on the clients reach the server through a proxy, with this login.
    pub(crate) fn use_proxy(&mut self, user: &str, password: &str) {
        let proxy = Proxy::start(self.server.port());
        self.config = Config::new(Address::Tcp(local(proxy.port()))).login(user, password);
        self.proxy = Some(proxy);
    }

    /// A client that reaches the server through a proxy.
    pub(crate) fn proxied(&self) -> (Proxy, Arc<RedisEngine>) {
        let proxy = Proxy::start(self.server.port());
        let config = Config::new(Address::Tcp(local(proxy.port())));
        (proxy, Arc::new(RedisEngine::new(config, &Env::system())))
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
        self.runtime.block_on(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// Runs a future on the runtime of the fixture.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// An exclusive claim that may queue, with a long ttl.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        claim_of(name)
    }

    /// Sends a command, and returns the reply as one line.
    pub(crate) fn command(&self, command: &[&str]) -> String {
        self.server.command(command).join(" ")
    }

    /// Waits until `done` is true; panics after a long time.
    pub(crate) fn until(&self, condition: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {condition}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The keys that must not exist when no claim holds or waits. These keys may exist: the newest tokens for an hour,
    /// tombstones for seconds, the record of an unclean end for an hour, and, for five minutes, the key that says that
    /// another program was seen.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        leftovers(|words| {
            let raw: Vec<&str> = [&["--raw"], words].concat();
            self.server.command(&raw)
        })
    }
}

/// The major version of Redis; `command` sends a command to the server. Valkey reports the version of Redis that it is
/// compatible with.
pub(crate) fn major(command: impl Fn(&[&str]) -> Vec<String>) -> u32 {
    let info = command(&["INFO", "server"]);
    let version = info.iter().find_map(|line| line.trim().strip_prefix("redis_version:")).unwrap();
    version.split('.').next().unwrap().parse().unwrap()
}

/// See [`Rig::leftovers`]; `command` sends a command to the server.
pub(crate) fn leftovers(command: impl Fn(&[&str]) -> Vec<String>) -> Vec<String> {
    let mut keys = command(&["KEYS", "*"]);
    let has_content = "local c = redis.call('GET', KEYS[1])
        return (c:sub(1, 2) == '1 ' or cmsgpack.unpack(c).holder or cmsgpack.unpack(c).ended) and 1 or 0";
    let may_remain = |key: &str| {
        let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
        // Redisson's layout adds a letter before the kind.
        match kind.and_then(|(_, kind)| kind.strip_prefix('r').unwrap_or(kind).chars().next()) {
            // A record may exist if it says that a hold was broken, was abandoned or expired.
            Some('c') => command(&["EVAL", has_content, "1", key]).concat() == "1",
            Some(kind) => matches!(kind, 'd' | 's' | 'w') || key.starts_with("leasehold:{}t"),
            None => false,
        }
    };
    keys.retain(|key| !key.is_empty() && !may_remain(key));
    keys
}

//! A server and its clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, Env, HAND_OVER_TOKENS, Inspect, Locks, Name, View};
use leasehold_etcd::{Config, EtcdEngine, Layout};
use leasehold_testkit::{
    claims,
    server::{EtcdServer, Proxy},
};
pub(crate) use leasehold_testkit::{
    claims::release_of,
    rig::{PATIENCE, acquire, local},
};

/// The argument of a server whose database is soon full.
pub(crate) const SMALL_DATABASE: &str = "--quota-backend-bytes=4194304";

/// A server and the configuration of its clients.
pub(crate) struct Rig {
    pub(crate) server: EtcdServer,
    /// The proxy between the suite's clients and the server, so that they can be cut off.
    pub(crate) proxy: Proxy,
    pub(crate) config: Config,
    layout: Layout,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts `etcd` with these further arguments. Elections are as short as possible, because a lone server waits for
    /// one at its start.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let short_elections = ["--heartbeat-interval=10", "--election-timeout=100"];
        let server = EtcdServer::start(&[&short_elections, arguments].concat());
        let config = Config::new(vec![local(server.port())]);
        let proxy = Proxy::start(server.port());
        let layout = Layout::Directory;
        Self { server, proxy, config, layout, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    /// A rig whose clients have `layout=key` and this prefix.
    pub(crate) fn with_lock_keys(prefix: &str) -> Self {
        Self::with_lock_keys_on(prefix, &[])
    }

    /// The same on a server with further arguments.
    pub(crate) fn with_lock_keys_on(prefix: &str, arguments: &[&str]) -> Self {
        let mut rig = Self::with(arguments);
        rig.layout = Layout::Key;
        rig.config = rig.config.layout(rig.layout).unwrap().prefix(prefix).unwrap();
        rig
    }

    /// A rig whose clients have `layout=election`.
    pub(crate) fn with_elections() -> Self {
        let mut rig = Self::new();
        rig.layout = Layout::Election;
        rig.config = rig.config.layout(rig.layout).unwrap();
        rig
    }

    /// Whether the clients have `layout=key`.
    pub(crate) fn has_lock_keys(&self) -> bool {
        self.layout == Layout::Key
    }

    /// Whether the server stores only that a name is held, as with `layout=election`.
    pub(crate) fn stores_names_only(&self) -> bool {
        self.layout == Layout::Election
    }

    pub(crate) fn engine(&self) -> Arc<EtcdEngine> {
        Arc::new(EtcdEngine::new(self.config.clone(), &Env::system()))
    }

    /// A client that reaches the server through a proxy.
    pub(crate) fn proxied(&self) -> (Proxy, Arc<EtcdEngine>) {
        let proxy = Proxy::start(self.server.port());
        let config = self.config.clone().members(vec![local(proxy.port())]);
        (proxy, Arc::new(EtcdEngine::new(config, &Env::system())))
    }

    /// The locks of a new client.
    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    /// The view of a name for operators.
    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.runtime.block_on(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// An exclusive claim that may queue, with a long ttl.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        claims::exclusive(name, Duration::from_secs(30))
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits until `done`, which must happen within the patience of the tests.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < limit, "waited {PATIENCE:?} until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All keys except those of leases and fences.
    pub(crate) fn keys(&self) -> Vec<String> {
        locks(self.server.command(&["get", "", "--prefix", "--keys-only"]))
    }

    /// The same at an earlier revision.
    pub(crate) fn keys_at(&self, revision: u64) -> Vec<String> {
        let revision = format!("--rev={revision}");
        locks(self.server.command(&["get", "", "--prefix", "--keys-only", &revision]))
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        let status = self.server.command(&["endpoint", "status", "-w", "json"]).join("");
        let revision = status.split("\"revision\":").nth(1).unwrap();
        revision.split([',', '}']).next().unwrap().parse().unwrap()
    }

    /// Writes values until the database is full. The server must have the argument [`SMALL_DATABASE`].
    pub(crate) fn fill(&self) {
        let large_value = "x".repeat(100_000);
        let full = (0..200).any(|number| {
            let put = leasehold_testkit::server::etcd_command(
                self.server.port(),
                &["put", &format!("fill{number}"), &large_value],
            );
            !put.status.success()
        });
        assert!(full, "the database has a bound");
    }

    /// The number of leases.
    pub(crate) fn leases(&self) -> usize {
        self.server.command(&["lease", "list"]).len() - 1
    }
}

/// The first token of a hold whose key was created at this revision.
pub(crate) fn first_token(revision: u64) -> u64 {
    revision * u64::from(HAND_OVER_TOKENS)
}

/// Filters out the keys of leases and fences. The keys of memos stay: they have to end by themselves.
pub(crate) fn locks(keys: Vec<String>) -> Vec<String> {
    let is_own = |key: &String| !["/queue/", "/memo/", "/key-memo/"].iter().any(|part| key.contains(part));
    let is_lock = |key: &String| !key.starts_with("leasehold/") || !is_own(key);
    keys.into_iter().filter(|key| !key.is_empty() && is_lock(key)).collect()
}

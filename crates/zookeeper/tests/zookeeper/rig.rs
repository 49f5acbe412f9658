//! A server and its clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, Engine, Env, Inspect, Locks, Name, Released, View};
use leasehold_testkit::{
    claims,
    server::{Proxy, ZookeeperServer},
};
pub(crate) use leasehold_testkit::{
    claims::release_of,
    rig::{PATIENCE, acquire, local},
};
use leasehold_zookeeper::{Config, Layout, ZookeeperEngine};

/// A server, and the configuration of its clients.
pub(crate) struct Rig {
    pub(crate) server: ZookeeperServer,
    /// The clients of the conformance suite connect through this proxy, so that they can be cut off.
    pub(crate) proxy: Proxy,
    pub(crate) config: Config,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts a server with these further lines of configuration.
    pub(crate) fn with(lines: &[&str]) -> Self {
        Self::of(ZookeeperServer::start(lines))
    }

    /// The clients of a server.
    pub(crate) fn of(server: ZookeeperServer) -> Self {
        let config = Config::new(vec![local(server.port())]);
        let proxy = Proxy::start(server.port());
        Self { server, proxy, config, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    /// The same with `layout=plain`.
    pub(crate) fn plain() -> Self {
        let mut rig = Self::new();
        rig.config = rig.config.layout(Layout::Plain);
        rig
    }

    /// The same with `layout=latch`.
    pub(crate) fn latch() -> Self {
        let mut rig = Self::new();
        rig.config = rig.config.layout(Layout::Latch);
        rig
    }

    pub(crate) fn engine(&self) -> Arc<ZookeeperEngine> {
        Arc::new(ZookeeperEngine::new(self.config.clone(), &Env::system()))
    }

    /// A client that reaches the server through a proxy.
    pub(crate) fn proxied(&self) -> (Proxy, Arc<ZookeeperEngine>) {
        let proxy = Proxy::start(self.server.port());
        let config = self.config.clone().servers(vec![local(proxy.port())]);
        (proxy, Arc::new(ZookeeperEngine::new(config, &Env::system())))
    }

    /// Locks as a program uses them.
    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    /// Locks with a changed configuration.
    pub(crate) fn locks_with(&self, change: impl FnOnce(Config) -> Config) -> Locks {
        let engine = ZookeeperEngine::new(change(self.config.clone()), &Env::system());
        Locks::builder(Arc::new(engine)).build()
    }

    /// A name as operators see it.
    pub(crate) fn show(&self, name: &str) -> View {
        self.runtime.block_on(self.view(&Name::new(name).unwrap()))
    }

    /// A name as operators see it, with retries until an answer comes.
    pub(crate) async fn view(&self, name: &Name) -> View {
        let limit = std::time::Instant::now() + PATIENCE;
        loop {
            let engine = self.engine();
            match Inspect::show(&*engine, name).await {
                Ok(view) => return view,
                Err(error) => assert!(std::time::Instant::now() < limit, "{error:?}"),
            }
        }
    }

    /// An exclusive claim with a long ttl that may queue.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        exclusive(name)
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits until `done` returns true.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let limit = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(
                std::time::Instant::now() < limit,
                "waited {PATIENCE:?} until {what}: {:?}",
                self.nodes()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The ephemeral nodes: the node of each claim is ephemeral.
    pub(crate) fn nodes(&self) -> Vec<String> {
        ephemerals(&self.server.four_letter_command("dump"))
    }

    /// The number of watches on the server.
    pub(crate) fn watches(&self) -> u32 {
        self.figure("zk_watch_count")
    }

    /// The number of requests that the server has received, heartbeats and this question included.
    pub(crate) fn requests(&self) -> u32 {
        self.figure("zk_packets_received")
    }

    fn figure(&self, name: &str) -> u32 {
        let reply = self.server.four_letter_command("mntr");
        let figure = reply.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        figure.trim().parse().unwrap()
    }

    /// The number of sessions.
    pub(crate) fn sessions(&self) -> usize {
        let reply = self.server.four_letter_command("dump");
        // Sessions are listed in the queue of their expiry, each with its number in a line of its own.
        reply
            .lines()
            .skip_while(|line| !line.starts_with("Session Sets"))
            .filter(|line| line.starts_with("\t0x"))
            .count()
    }
}

/// The paths in the server's list of ephemeral nodes.
pub(crate) fn ephemerals(dump: &str) -> Vec<String> {
    dump.lines().filter_map(|line| line.trim().strip_prefix('/')).map(|path| format!("/{path}")).collect()
}

/// An exclusive claim with a long ttl that may queue.
pub(crate) fn exclusive(name: &str) -> Claim {
    claims::exclusive(name, Duration::from_secs(30))
}

/// Releases a claim until the answer is certain.
pub(crate) async fn release_until_certain(engine: &ZookeeperEngine, claim: &Claim) -> Vec<Released> {
    loop {
        let reply = engine.release(&release_of(claim)).await;
        if !matches!(reply[..], [Released::Unknown(_)]) {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

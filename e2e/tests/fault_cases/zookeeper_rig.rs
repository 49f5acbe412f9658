//! What the rows on ZooKeeper need: a server, and clients through a proxy.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testkit::server::{Proxy, ZookeeperServer};

use crate::rig::{until, warm};

/// A session that the servers of tests grant, and what is believed of it at most.
pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

/// By how much a session outlives its time: the server ends them in steps of its tick.
pub(crate) const EXPIRY: Duration = Duration::from_millis(1000);

/// A server and who reaches it.
pub(crate) struct Rig {
    pub(crate) server: ZookeeperServer,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(lines: &[&str]) -> Self {
        Self { server: ZookeeperServer::start(lines) }
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks::connect(&self.server.url()).unwrap()
    }

    /// Locks behind a proxy, connected, with a session that stays.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let locks = Locks::connect(&format!("zookeeper://127.0.0.1:{}", proxy.port())).unwrap();
        (0..2).for_each(|_| warm(&locks, SHORTEST));
        (proxy, locks)
    }

    /// The nodes of all claims.
    pub(crate) fn nodes(&self) -> Vec<String> {
        nodes(&self.server.four_letters("dump"))
    }

    pub(crate) fn expect_clean(&self) {
        until("no node is left", || self.nodes().is_empty());
    }
}

/// What a server tells of the nodes that end with a session.
pub(crate) fn nodes(dump: &str) -> Vec<String> {
    dump.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect()
}

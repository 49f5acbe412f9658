//! Fixture: a ZooKeeper server, and clients through a proxy.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testkit::server::{Proxy, ZookeeperServer};

use crate::rig::{until, warm};

/// The shortest session that the test servers grant.
pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

/// How long an expired session may remain: the server ends sessions in steps of its tick.
pub(crate) const EXPIRY: Duration = Duration::from_millis(1000);

/// A server and its clients.
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

    /// A connected client behind a proxy, with a session that stays open.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let locks = Locks::connect(&format!("zookeeper://127.0.0.1:{}", proxy.port())).unwrap();
        (0..2).for_each(|_| warm(&locks, SHORTEST));
        (proxy, locks)
    }

    /// The nodes of all claims.
    pub(crate) fn nodes(&self) -> Vec<String> {
        nodes(&self.server.four_letter_command("dump"))
    }

    pub(crate) fn expect_clean(&self) {
        until("no node is left", || self.nodes().is_empty());
    }
}

/// The ephemeral nodes in the output of the command `dump`.
pub(crate) fn nodes(dump: &str) -> Vec<String> {
    dump.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned).collect()
}

//! A server and its clients.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Claim, Env, Guard, Inspect, Locks, Name, View};
use leasehold_sql::{
    SqlEngine,
    postgres::{Config, engine},
};
use leasehold_testkit::{
    claims,
    server::{PostgresServer, Proxy},
};

pub(crate) use leasehold_testkit::claims::release_of;

pub(crate) use crate::until::{PATIENCE, until};

pub(crate) struct Rig {
    pub(crate) server: PostgresServer,
    /// The clients of the conformance suite connect through it, so that they can be cut off.
    pub(crate) proxy: Proxy,
    runtime: tokio::runtime::Runtime,
}

/// Acquires a mutex by the blocking API.
pub(crate) fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).blocking().acquire_within(PATIENCE).unwrap()
}

/// A client of this user on this port.
pub(crate) fn locks_of(user: &str, port: u16) -> Locks {
    Locks::builder(engine_of(user, port)).build()
}

/// The configuration from a URL.
pub(crate) fn config(url: &str) -> Config {
    Config::from_url(url.strip_prefix("postgres:").unwrap()).unwrap()
}

pub(crate) fn engine_of(user: &str, port: u16) -> Arc<SqlEngine> {
    let config = Config::from_url(&format!("//{user}@127.0.0.1:{port}/postgres")).unwrap();
    Arc::new(engine(config, &Env::system()))
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::of(PostgresServer::start(&[]))
    }

    pub(crate) fn of(server: PostgresServer) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { proxy: Proxy::start(server.port()), server, runtime }
    }

    pub(crate) fn engine(&self) -> Arc<SqlEngine> {
        engine_of("postgres", self.server.port())
    }

    /// A client by the public API.
    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    /// A client behind a proxy of its own, so that it can be cut off.
    pub(crate) fn proxied(&self) -> (Proxy, Arc<SqlEngine>) {
        let proxy = Proxy::start(self.server.port());
        let engine = engine_of("postgres", proxy.port());
        (proxy, engine)
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn spawn(&self, work: impl Future<Output: Send> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// The state of a name, as operators see it.
    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.run(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// An exclusive claim that may queue and lasts longer than any test.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        claims::exclusive(name, Duration::from_secs(600))
    }

    /// All rows that carry information.
    pub(crate) fn remaining_rows(&self) -> Vec<String> {
        self.server.query(
            "SELECT name, stand FROM leasehold_claim UNION ALL \
             SELECT name, -1 FROM leasehold_lock WHERE holder IS NOT NULL OR claims <> 0 UNION ALL \
             SELECT name, -2 FROM leasehold_memo",
        )
    }

    /// How many connections leasehold has to the server.
    pub(crate) fn connections(&self) -> usize {
        let counted =
            self.server.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'");
        counted[0].parse().unwrap()
    }
}

//! A server and its clients with `hold=session`.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, Inspect, Locks, Name, View};
use leasehold_sql::{
    SessionEngine,
    postgres::{Config, SessionOptions, session_engine},
};
use leasehold_testkit::server::{PostgresServer, Proxy};

/// A server for locks of sessions.
pub(crate) struct SessionRig {
    pub(crate) server: PostgresServer,
    /// The clients of the conformance suite connect through it.
    pub(crate) proxy: Proxy,
    pub(crate) runtime: tokio::runtime::Runtime,
}

/// Options without a lock delay, which every new server would have.
pub(crate) fn at_once() -> SessionOptions {
    SessionOptions::default().delay(Duration::ZERO).unwrap()
}

/// A client of this user on this port.
pub(crate) fn engine_of(user: &str, port: u16, options: SessionOptions) -> Arc<SessionEngine> {
    let config = Config::from_url(&format!("//{user}@127.0.0.1:{port}/postgres")).unwrap();
    Arc::new(session_engine(config, options, &Env::system()))
}

impl SessionRig {
    pub(crate) fn new() -> Self {
        Self::of(PostgresServer::start(&[]))
    }

    pub(crate) fn of(server: PostgresServer) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { proxy: Proxy::start(server.port()), server, runtime }
    }

    pub(crate) fn engine(&self) -> Arc<SessionEngine> {
        engine_of("postgres", self.server.port(), at_once())
    }

    /// A client by the public API: a session of its own.
    pub(crate) fn locks(&self) -> Locks {
        Locks::builder(self.engine()).build()
    }

    /// A client behind a proxy of its own, so that it can be cut off.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let engine = engine_of("postgres", proxy.port(), at_once());
        (proxy, Locks::builder(engine).build())
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The state of a name, as operators see it.
    pub(crate) fn show(&self, name: &str) -> View {
        let engine = self.engine();
        self.run(Inspect::show(&*engine, &Name::new(name).unwrap())).unwrap()
    }

    /// The advisory locks of the server, and what waits for them in the server.
    pub(crate) fn advisory_locks(&self) -> Vec<String> {
        self.server
            .query("SELECT classid, objid, objsubid, mode, pid FROM pg_locks WHERE locktype = 'advisory'")
    }
}

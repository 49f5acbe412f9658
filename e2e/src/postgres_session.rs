//! Locks of sessions on PostgreSQL. A cut connection or an operator ends a session on the server before its client is
//! told, so after the first fault there is no exclusion; the fence holds.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::PostgresServer;

use crate::{
    served::{Served, System},
    world::{Fault, Promise},
};

/// The name of the engine.
pub const SESSION: &str = "postgres-session";

/// The only server.
pub struct Sessions(PostgresServer);

/// Ends the sessions of all clients.
const TERMINATE: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";

impl System for Sessions {
    const SCHEME: &'static str = "postgres";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        &[Fault {
            name: "sessions ended",
            lasts: 1..10,
            begin: |w, _| drop(w.system.0.query(TERMINATE)),
            end: |_, _| {},
        }]
    }

    fn start(_: u64, _: Promise) -> Self {
        Self(PostgresServer::start(&[]))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("postgres://postgres@{servers}/postgres?hold=session&delay=0s")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        guarantee.level == Level::BestEffort && guarantee.to_string().contains("delay is 0ns")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        let locks = self.0.query(locks)[0].parse().unwrap_or(u64::MAX);
        BTreeMap::from([("advisory locks".to_owned(), locks)])
    }
}

//! The table of ShedLock on PostgreSQL: rows with a lease.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::PostgresServer;

use crate::{
    postgres::TERMINATE,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The table, as the page of ShedLock has it.
const CREATE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
/// Locks the rows of two names for a short time, as an operator may do.
const KEEP_LOCKED: &str =
    "BEGIN; SELECT FROM shedlock WHERE name IN ('m0', 'r0') FOR UPDATE; SELECT pg_sleep(0.4); COMMIT";
/// Rows that are held, or locked for longer than any lease of a round.
const HELD: &str = "SELECT name FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())";

/// The only server.
pub struct Shedlock(PostgresServer);

impl System for Shedlock {
    const SCHEME: &'static str = "postgres";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        &[
            Fault {
                name: "server restarts",
                lasts: 5..300,
                begin: |w, _| w.system.0.kill(),
                end: |w, _| w.system.0.restart(),
            },
            Fault {
                name: "sessions ended",
                lasts: 1..10,
                begin: |w, _| drop(w.system.0.query(TERMINATE)),
                end: |_, _| {},
            },
            Fault {
                name: "rows kept locked",
                lasts: 1..10,
                begin: |w, _| drop(w.system.0.query(KEEP_LOCKED)),
                end: |_, _| {},
            },
        ]
    }

    fn start(_: u64, _: Promise) -> Self {
        let server = PostgresServer::start(&[]);
        server.query(CREATE);
        Self(server)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("postgres://postgres@{servers}/postgres?layout=shedlock")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        // With fsync off, a kill of the server loses nothing, but a power cut may lose data. The engine reports this
        // setting, and nothing else lowers the level.
        let finding = guarantee.findings.iter().map(|finding| finding.what.as_str());
        guarantee.level == Level::BestEffort && finding.eq(["fsync"])
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        self.0.query(HELD).into_iter().map(|name| (format!("row {name}"), 1)).collect()
    }
}

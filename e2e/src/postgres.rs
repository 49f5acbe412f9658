//! PostgreSQL: one server, which loses no acknowledged write when its process is killed.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::PostgresServer;

use crate::{
    served::{Served, System},
    world::{Fault, Promise},
};

/// The only server.
pub struct Postgres(PostgresServer);

/// Ends the sessions of all clients. Their listeners have sessions too.
pub(crate) const TERMINATE: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
/// Locks the rows of two names for a short time, as an operator may do.
const KEEP_LOCKED: &str =
    "BEGIN; SELECT FROM leasehold_lock WHERE name IN ('m0', 'r0') FOR UPDATE; SELECT pg_sleep(0.4); COMMIT";
/// Finds rows that must not remain at the end of a round: those that expire more than 70 s from now. Rows of killed
/// clients remain, but expire earlier.
const LEFTOVER_ROWS: &str =
    "WITH t AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 70000000 AS late)
    SELECT 'claim ' || name FROM leasehold_claim, t WHERE greatest(expires, place_expires) > late
    UNION ALL SELECT 'hold ' || name FROM leasehold_lock, t WHERE holder IS NOT NULL AND expires > late";

impl System for Postgres {
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
                begin: |w, _| w.system.execute(TERMINATE),
                end: |_, _| {},
            },
            Fault {
                name: "rows kept locked",
                lasts: 1..10,
                begin: |w, _| w.system.execute(KEEP_LOCKED),
                end: |_, _| {},
            },
        ]
    }

    fn start(_: u64, _: Promise) -> Self {
        Self(PostgresServer::start(&[]))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("postgres://postgres@{servers}/postgres")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        // With fsync off, a kill of the server loses nothing, but a power cut may lose data. The engine reports this
        // setting.
        guarantee.level == Level::BestEffort && guarantee.to_string().contains("fsync is off")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let mut leftovers: BTreeMap<String, u64> =
            self.0.query(LEFTOVER_ROWS).into_iter().map(|left| (left, 1)).collect();
        // One session belongs to the admin client.
        let sessions =
            self.0.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'");
        let sessions = sessions[0].parse::<u64>().unwrap_or(u64::MAX).saturating_sub(1);
        leftovers.insert("sessions".to_owned(), sessions);
        leftovers
    }
}

impl Postgres {
    fn execute(&self, sql: &str) {
        drop(self.0.query(sql));
    }
}

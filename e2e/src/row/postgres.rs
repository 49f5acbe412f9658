//! Rows of another program on PostgreSQL.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::PostgresServer;

use super::{LOCKED_BY_OTHER, OPTIONS, OTHERS, create};
use crate::{
    postgres::TERMINATE,
    proxied::Proxied,
    served::{Served, System},
    session::{ENDED, RESTART},
    world::{Fault, Promise},
};

/// How many connections the admin client keeps.
const OF_ADMIN: u64 = 2;

/// The only server.
pub struct Rows(PostgresServer);

impl Rows {
    const SERVER_RESTARTS: Fault<Served<Self>> = Fault {
        name: RESTART,
        lasts: 5..300,
        begin: |w, _| w.system.0.kill(),
        end: |w, _| w.system.0.restart(),
    };

    const SESSIONS_ENDED: Fault<Served<Self>> =
        Fault { name: ENDED, lasts: 1..10, begin: |w, _| drop(w.system.0.query(TERMINATE)), end: |_, _| {} };

    const LOCKED_BY_OTHER: Fault<Served<Self>> = Fault {
        name: LOCKED_BY_OTHER,
        lasts: 1..10,
        begin: |w, _| drop(w.system.0.query(&format!("BEGIN; {OTHERS}; SELECT pg_sleep(0.4); COMMIT"))),
        end: |_, _| {},
    };
}

impl System for Rows {
    const SCHEME: &'static str = "postgres";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn client_faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        match promise {
            Promise::Exclusion => Served::<Self>::FAULTS_WITHOUT_CUTS,
            _ => Served::<Self>::FAULTS,
        }
    }

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        match promise {
            Promise::Exclusion => &[Self::LOCKED_BY_OTHER],
            _ => &[Self::SERVER_RESTARTS, Self::SESSIONS_ENDED, Self::LOCKED_BY_OTHER],
        }
    }

    fn start(_: u64, _: Promise) -> Self {
        let server = PostgresServer::start(&[]);
        server.query(&create());
        Self(server)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("postgres://postgres@{servers}/postgres?{OPTIONS}")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        guarantee.level == Level::BestEffort && guarantee.to_string().contains("hold is row")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let sessions = "SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%') \
             FROM pg_stat_activity WHERE application_name = 'leasehold'";
        let counts = self.0.query(sessions);
        let mut counts = counts[0].split('|').map(|count| count.parse().unwrap_or(u64::MAX));
        let mut next = || counts.next().unwrap_or(u64::MAX);
        let sessions = next().saturating_sub(OF_ADMIN);
        BTreeMap::from([("sessions".to_owned(), sessions), ("transactions".to_owned(), next())])
    }
}

//! Locks of sessions on PostgreSQL.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::PostgresServer;

use super::{ENDED, RESTART, finding, options};
use crate::{
    postgres::TERMINATE,
    proxied::Proxied,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The only server.
pub struct Sessions {
    server: PostgresServer,
    promise: Promise,
}

impl Sessions {
    const SERVER_RESTARTS: Fault<Served<Self>> = Fault {
        name: RESTART,
        lasts: 5..300,
        begin: |w, _| w.system.server.kill(),
        end: |w, _| w.system.server.restart(),
    };

    const SESSIONS_ENDED: Fault<Served<Self>> = Fault {
        name: ENDED,
        lasts: 1..10,
        begin: |w, _| drop(w.system.server.query(TERMINATE)),
        end: |_, _| {},
    };
}

impl System for Sessions {
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
            Promise::Exclusion => &[Self::SERVER_RESTARTS],
            _ => &[Self::SERVER_RESTARTS, Self::SESSIONS_ENDED, Self::SESSIONS_ENDED],
        }
    }

    fn start(_: u64, promise: Promise) -> Self {
        Self { server: PostgresServer::start(&[]), promise }
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn url_of(&self, ports: &[u16]) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?{}", ports[0], options(self.promise))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool {
        guarantee.level == Level::BestEffort && guarantee.to_string().contains(&finding(promise))
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        let locks = self.server.query(locks)[0].parse().unwrap_or(u64::MAX);
        BTreeMap::from([("advisory locks".to_owned(), locks)])
    }
}

//! Locks of sessions on MariaDB or MySQL.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::MariadbServer;

use super::{ENDED, RESTART, finding, options};
use crate::{
    mariadb::end_sessions,
    proxied::Proxied,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The options with which a server lists the locks of sessions.
const LISTING: [&str; 2] =
    ["--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"];
/// The number of locks that sessions have.
const LOCKS: &str =
    "SELECT COUNT(*) FROM performance_schema.metadata_locks WHERE object_type = 'USER LEVEL LOCK'";

/// The only server.
pub struct Sessions {
    server: MariadbServer,
    promise: Promise,
}

impl Sessions {
    const SERVER_STOPS: Fault<Served<Self>> = Fault {
        name: "server stops",
        lasts: 20..1500,
        begin: |w, _| w.system.server.pause(),
        end: |w, _| w.system.server.resume(),
    };

    const SERVER_RESTARTS: Fault<Served<Self>> = Fault {
        name: RESTART,
        lasts: 5..300,
        begin: |w, _| w.system.server.kill(),
        end: |w, _| w.system.server.restart(),
    };

    const SESSIONS_ENDED: Fault<Served<Self>> =
        Fault { name: ENDED, lasts: 1..10, begin: |w, _| end_sessions(&w.system.server), end: |_, _| {} };
}

impl System for Sessions {
    const SCHEME: &'static str = "mysql";
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
            Promise::Exclusion => &[Self::SERVER_STOPS, Self::SERVER_RESTARTS],
            _ => &[Self::SERVER_STOPS, Self::SERVER_RESTARTS, Self::SESSIONS_ENDED, Self::SESSIONS_ENDED],
        }
    }

    fn start(_: u64, promise: Promise) -> Self {
        Self { server: MariadbServer::start(&LISTING), promise }
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn url_of(&self, ports: &[u16]) -> String {
        format!("mysql://root@127.0.0.1:{}/locks?{}", ports[0], options(self.promise))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool {
        guarantee.level == Level::BestEffort && guarantee.to_string().contains(&finding(promise))
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let locks = self.server.query(LOCKS)[0].parse().unwrap_or(u64::MAX);
        BTreeMap::from([("locks of sessions".to_owned(), locks)])
    }
}

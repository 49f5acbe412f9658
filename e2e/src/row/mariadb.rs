//! Rows of another program on MariaDB.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::MariadbServer;

use super::{LOCKED_BY_OTHER, OPTIONS, OTHERS, create};
use crate::{
    mariadb::{count_of_sessions, end_sessions_of},
    proxied::Proxied,
    served::{Served, System},
    session::{ENDED, RESTART},
    world::{Fault, Promise},
};

/// The user of all clients, with the rights that the page names.
const USER: &str = "app";
/// How many connections the admin client keeps.
const OF_ADMIN: u64 = 2;

/// The only server.
pub struct Rows(MariadbServer);

impl Rows {
    const SERVER_STOPS: Fault<Served<Self>> = Fault {
        name: "server stops",
        lasts: 20..1500,
        begin: |w, _| w.system.0.pause(),
        end: |w, _| w.system.0.resume(),
    };

    const SERVER_RESTARTS: Fault<Served<Self>> = Fault {
        name: RESTART,
        lasts: 5..300,
        begin: |w, _| w.system.0.kill(),
        end: |w, _| w.system.0.restart(),
    };

    const SESSIONS_ENDED: Fault<Served<Self>> =
        Fault { name: ENDED, lasts: 1..10, begin: |w, _| end_sessions_of(&w.system.0, USER), end: |_, _| {} };

    const LOCKED_BY_OTHER: Fault<Served<Self>> = Fault {
        name: LOCKED_BY_OTHER,
        lasts: 1..10,
        begin: |w, _| drop(w.system.0.query(&format!("BEGIN; {OTHERS}; SELECT SLEEP(0.4); COMMIT"))),
        end: |_, _| {},
    };
}

impl System for Rows {
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
            Promise::Exclusion => &[Self::SERVER_STOPS, Self::LOCKED_BY_OTHER],
            _ => &[Self::SERVER_STOPS, Self::SERVER_RESTARTS, Self::SESSIONS_ENDED, Self::LOCKED_BY_OTHER],
        }
    }

    fn start(_: u64, _: Promise) -> Self {
        // Each of the four clients may have a connection for each lock, and two more.
        let server = MariadbServer::start(&["--max-connections=200"]);
        server.query(&create());
        server.query(&format!("CREATE USER {USER}; GRANT SELECT, UPDATE ON xxl_job_lock TO {USER}"));
        Self(server)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("mysql://{USER}@{servers}/locks?{OPTIONS}")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        guarantee.level == Level::BestEffort && guarantee.to_string().contains("hold is row")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let sessions = count_of_sessions(&self.0, USER).saturating_sub(OF_ADMIN);
        BTreeMap::from([("sessions".to_owned(), sessions)])
    }
}

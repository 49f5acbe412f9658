//! MariaDB or MySQL: one server, which loses no acknowledged write when its process is stopped or killed.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::{Brand, MariadbServer};

use crate::{
    Failure,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The only server. If `MYSQL` is true, it must be a MySQL; otherwise it must be a MariaDB.
pub struct Server<const MYSQL: bool>(MariadbServer);
/// The MariaDB of this system, or of the system that `LEASEHOLD_TEST_SYSTEM` names.
pub type Mariadb = Server<false>;
/// The MySQL of the system that `LEASEHOLD_TEST_SYSTEM` names.
pub type Mysql = Server<true>;

/// The error when no MySQL is found.
const NO_MYSQL: &str = "no MySQL was found: unpack one with `setup/server debian sid DIRECTORY mysql-server-core`, \
     and set LEASEHOLD_TEST_SYSTEM=DIRECTORY";

/// The sessions of all clients.
const SESSIONS: &str =
    "SELECT id FROM information_schema.processlist WHERE db = 'locks' AND id <> connection_id()";
/// Locks the rows of two names for a short time, as an operator may do.
const KEEP_LOCKED: &str =
    "BEGIN; SELECT name FROM leasehold_lock WHERE name IN ('m0', 'r0') FOR UPDATE; SELECT SLEEP(0.4); COMMIT";
/// Finds rows that must not remain at the end of a round: those that expire more than 70 s from now. Rows of killed
/// clients remain, but expire earlier.
const LEFTOVER_ROWS: &str = "SELECT CONCAT('claim ', name) FROM leasehold_claim
    WHERE GREATEST(expires, place_expires) > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 + 70000000
    UNION ALL SELECT CONCAT('hold ', name) FROM leasehold_lock
    WHERE holder IS NOT NULL AND expires > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 + 70000000";

impl<const MYSQL: bool> System for Server<MYSQL> {
    const SCHEME: &'static str = "mysql";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        &[
            Fault {
                name: "server stops",
                lasts: 20..1500,
                begin: |w, _| w.system.0.pause(),
                end: |w, _| w.system.0.resume(),
            },
            Fault {
                name: "server restarts",
                lasts: 5..300,
                begin: |w, _| w.system.0.kill(),
                end: |w, _| w.system.0.restart(),
            },
            Fault {
                name: "sessions ended",
                lasts: 1..10,
                begin: |w, _| end_sessions(&w.system.0),
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
        Self(MariadbServer::start(&["--innodb-flush-log-at-trx-commit=2"]))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url(servers: &str) -> String {
        format!("mysql://root@{servers}/locks")
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        // With the setting of `start`, a kill of the server loses nothing, but a power cut may lose data. The engine
        // reports this setting.
        guarantee.level == Level::BestEffort
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let mut leftovers: BTreeMap<String, u64> =
            self.0.query(LEFTOVER_ROWS).into_iter().map(|left| (left, 1)).collect();
        // One session belongs to the admin client.
        let sessions = self.0.query(SESSIONS).len().saturating_sub(1);
        leftovers.insert("sessions".to_owned(), sessions as u64);
        leftovers
    }
}

impl<const MYSQL: bool> Server<MYSQL> {
    /// Fails unless the server that a round would start is of the requested kind, MySQL or MariaDB.
    ///
    /// # Errors
    /// When the server is of the other kind; the message says what to do.
    pub fn check_available() -> Result<(), Failure> {
        Self::check_kind(Brand::found())
    }

    fn check_kind(found: Brand) -> Result<(), Failure> {
        match (MYSQL, found) {
            (true, Brand::Mysql) | (false, Brand::Mariadb) => Ok(()),
            (true, Brand::Mariadb) => Err(NO_MYSQL.into()),
            (false, Brand::Mysql) => {
                Err("LEASEHOLD_TEST_SYSTEM names a MySQL, not a MariaDB: use --engine mysql".into())
            }
        }
    }
}

/// Ends the sessions of all clients.
pub(crate) fn end_sessions(server: &MariadbServer) {
    for session in server.query(SESSIONS) {
        // If the session has ended already, the command fails.
        let _ = server.succeeds(&format!("KILL {session}"));
    }
}

/// Ends the sessions of one user, on MariaDB.
pub(crate) fn end_sessions_of(server: &MariadbServer, user: &str) {
    // If the user has no session, the command fails.
    let _ = server.succeeds(&format!("KILL CONNECTION USER {user}"));
}

/// The number of sessions of one user.
pub(crate) fn count_of_sessions(server: &MariadbServer, user: &str) -> u64 {
    let count = format!("SELECT count(*) FROM information_schema.processlist WHERE user = '{user}'");
    server.query(&count)[0].parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_must_be_of_the_requested_kind() {
        assert!(Mysql::check_kind(Brand::Mysql).is_ok() && Mariadb::check_kind(Brand::Mariadb).is_ok());
        let message = Mysql::check_kind(Brand::Mariadb).unwrap_err().to_string();
        assert!(message.contains("setup/server") && message.contains("LEASEHOLD_TEST_SYSTEM"), "{message}");
        assert!(Mariadb::check_kind(Brand::Mysql).unwrap_err().to_string().contains("--engine mysql"));
    }
}

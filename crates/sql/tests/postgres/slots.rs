//! A server, a role and a database with few connections.

use leasehold_core::Locks;
use leasehold_sql::postgres::SCHEMA;
use leasehold_testkit::server::{PostgresServer, psql};

use crate::{
    few_connections::{FewConnections, more_wait_than_there_are},
    rig::{Rig, locks_of},
};

const ROLES: &str = include_str!("../../../../docs/engines/postgres-roles.sql");

struct LimitedServer {
    rig: Rig,
    /// The role of the other program.
    other: &'static str,
}

impl LimitedServer {
    /// The queries of the test run as the superuser, for whom the server reserves connections.
    fn new(settings: &[&str], limits: &str, other: &'static str) -> Self {
        let rig = Rig::of(PostgresServer::start(settings));
        for statement in [SCHEMA, ROLES, "CREATE ROLE app LOGIN", limits] {
            rig.server.query(statement);
        }
        Self { rig, other }
    }
}

impl FewConnections for LimitedServer {
    fn client(&self) -> Locks {
        locks_of("leasehold", self.rig.server.port())
    }

    fn try_connect(&self) -> Result<(), String> {
        let output = psql(self.rig.server.port(), &["-U", self.other, "-c", "SELECT 1"]);
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn query(&self, query: &str) -> Vec<String> {
        self.rig.server.query(query)
    }
}

#[test]
fn more_wait_than_the_server_has_connections() {
    more_wait_than_there_are(&LimitedServer::new(&["max_connections=40"], "SELECT 1", "app"), 37, 60);
}

#[test]
fn more_wait_than_the_role_may_have_connections() {
    let limit = "ALTER ROLE leasehold CONNECTION LIMIT 24";
    more_wait_than_there_are(&LimitedServer::new(&[], limit, "leasehold"), 24, 36);
}

#[test]
fn more_wait_than_the_database_takes_connections() {
    let limit = "ALTER DATABASE postgres CONNECTION LIMIT 24";
    more_wait_than_there_are(&LimitedServer::new(&[], limit, "app"), 24, 36);
}

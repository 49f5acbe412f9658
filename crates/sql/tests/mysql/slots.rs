//! A server and a user with few connections.

use leasehold_core::Locks;
use leasehold_sql::mysql::{GRANTS, SCHEMA};
use leasehold_testkit::server::MariadbServer;

use crate::{
    few_connections::{FewConnections, more_wait_than_there_are},
    rig::{Rig, USER, as_user, engine_at},
};

struct LimitedServer(Rig);

impl LimitedServer {
    fn new(options: &[&str], limits: &str) -> Self {
        let rig = Rig::of(MariadbServer::start(options));
        for statement in [SCHEMA, USER, GRANTS, limits] {
            rig.server.query(statement);
        }
        Self(rig)
    }
}

impl FewConnections for LimitedServer {
    fn client(&self) -> Locks {
        Locks::builder(engine_at(&as_user(&self.0))).build()
    }

    fn try_connect(&self) -> Result<(), String> {
        self.client().guarantee_blocking().map(drop).map_err(|error| error.to_string())
    }

    fn query(&self, query: &str) -> Vec<String> {
        self.0.server.query(query)
    }
}

#[test]
fn more_wait_than_the_server_has_connections() {
    more_wait_than_there_are(&LimitedServer::new(&["--max-connections=40"], "DO 0"), 40, 60);
}

#[test]
fn more_wait_than_the_user_may_have_connections() {
    let limit = "ALTER USER locker@'%' WITH MAX_USER_CONNECTIONS 24";
    more_wait_than_there_are(&LimitedServer::new(&[], limit), 24, 36);
}

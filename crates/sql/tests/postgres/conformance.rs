//! The PostgreSQL engine conforms.

use std::sync::Arc;

use leasehold_sql::SqlEngine;
use leasehold_testkit::suite::Disturbance;

use crate::{
    harness::{Conforms, assert_conforms},
    rig::Rig,
};

impl Conforms for Rig {
    fn client(&self) -> Arc<SqlEngine> {
        crate::rig::engine_of("postgres", self.proxy.port())
    }

    fn disturb(&self, kind: Disturbance) -> bool {
        match kind {
            Disturbance::Forget => {
                drop(self.server.query("DELETE FROM leasehold_claim; DELETE FROM leasehold_lock"));
            }
            Disturbance::Cut => self.proxy.reset(),
            Disturbance::HoldAnswers => self.proxy.hold_answers(),
            _ => return false,
        }
        true
    }

    fn rows(&self) -> Vec<String> {
        self.remaining_rows()
    }
}

#[test]
fn the_postgres_engine_conforms() {
    assert_conforms(&Rig::new(), 80);
}

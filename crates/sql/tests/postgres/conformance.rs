//! The PostgreSQL engine conforms.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine};
use leasehold_sql::SqlEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness, left_at_rest};

use crate::rig::Rig;

/// Claims in the largest case: each reads the rows of all others. A thousand come at night.
const CROWD: usize = 250;
/// Cases at once: they mostly wait for leases to end.
pub(crate) const AT_ONCE: usize = 8;

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine: Arc<SqlEngine> = crate::rig::engine_of("postgres", self.proxy.port());
        Box::pin(async move { engine as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => {
                drop(self.server.says("DELETE FROM leasehold_claim; DELETE FROM leasehold_lock"));
            }
            Disturbance::Cut => self.proxy.reset(),
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn crowd(&self) -> usize {
        suite::crowd_or(CROWD)
    }

    fn patience(&self) -> Duration {
        crate::rig::PATIENCE
    }

    fn at_rest(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(left_at_rest(|| self.left()))
    }
}

#[test]
fn the_postgres_engine_conforms() {
    let rig = Rig::new();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

//! The locks of sessions conform.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine};
use leasehold_sql::SessionEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness, wait_for_no_leftovers};

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::{PATIENCE, until};

/// The number of claims in the largest case.
const CROWD: usize = 100;

impl Harness for SessionRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine: Arc<SessionEngine> = engine_of("postgres", self.proxy.port(), at_once());
        Box::pin(std::future::ready(engine as Arc<dyn Engine>))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        // A cut connection ends its session, so `Cut` is not possible.
        let is_possible = kind == Disturbance::Forget;
        if is_possible {
            let ours =
                self.server.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'");
            let ours = ours.join(", ");
            let of = |what: &str| {
                self.server
                    .query(&format!("SELECT {what} FROM pg_stat_activity WHERE pid = ANY ('{{{ours}}}')"))
            };
            of("pg_terminate_backend(pid)");
            // A session tells its client that it ends, and frees its locks after that.
            until("the sessions have ended", || of("pid").is_empty());
        }
        Box::pin(std::future::ready(is_possible))
    }

    fn parallel_cases(&self) -> usize {
        4
    }

    fn max_waiters(&self) -> usize {
        suite::max_waiters_or(CROWD)
    }

    fn grants_after_releases(&self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.advisory_locks()))
    }
}

#[test]
fn the_locks_of_sessions_conform() {
    let report = suite::engine(&SessionRig::new());
    assert!(report.passed.len() > 30, "{report}");
}

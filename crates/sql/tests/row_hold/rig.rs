//! What the tests of both databases share.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Guard, Locks, Loss};
use leasehold_sql::RowEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness};

use crate::until::PATIENCE;

/// The conformance suite on one database.
pub(crate) struct Conforms<'a> {
    /// Makes a client.
    pub(crate) client: &'a (dyn Fn() -> RowEngine + Sync),
}

impl Harness for Conforms<'_> {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine: Arc<dyn Engine> = Arc::new((self.client)());
        Box::pin(std::future::ready(engine))
    }

    fn disturb(&self, _: Disturbance) -> BoxFuture<'_, bool> {
        // A connection that is cut ends its hold, which the cases do not expect.
        Box::pin(std::future::ready(false))
    }

    fn parallel_cases(&self) -> usize {
        4
    }

    fn max_waiters(&self) -> usize {
        8
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        let engine = (self.client)();
        Box::pin(async move {
            let mut left = Vec::new();
            for _ in 0..100 {
                left = leasehold_core::Inspect::list(&engine, "").await.unwrap();
                if left.is_empty() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            left.iter().map(|view| format!("{view:?}")).collect()
        })
    }
}

impl Conforms<'_> {
    /// Runs the suite. More than `min_passed` cases must apply and pass.
    pub(crate) fn assert(&self, min_passed: usize) {
        let report = suite::engine(self);
        assert!(report.passed.len() > min_passed, "{report}");
    }
}

pub(crate) fn locks(engine: RowEngine) -> Locks {
    Locks::builder(Arc::new(engine)).build()
}

pub(crate) fn acquire(locks: &Locks, name: &str) -> Guard {
    locks.mutex(name).blocking().acquire_within(PATIENCE).unwrap()
}

/// Waits until the guard has been told of its loss.
pub(crate) fn wait_for_loss(guard: &Guard) {
    crate::until::until("the loss is told", || !guard.check());
}

/// The reason of a loss that was told.
pub(crate) fn told_loss(guard: &Guard) -> Loss {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(guard.lost())
}

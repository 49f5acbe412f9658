//! The conformance suite on one database: what the tests of all databases share.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine};
use leasehold_sql::SqlEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness, wait_for_no_leftovers};

use crate::until::PATIENCE;

/// The number of claims in the largest case, where each claim reads the rows of all others. The nightly run has a
/// thousand.
const CROWD: usize = 250;
/// How many cases run at the same time: they mostly wait for leases to end.
const AT_ONCE: usize = 8;

/// A database on which the suite runs.
pub(crate) trait Conforms: Sync {
    fn client(&self) -> Arc<SqlEngine>;

    /// Disturbs the database; returns `false` if this is not possible: then nothing happened.
    fn disturb(&self, kind: Disturbance) -> bool;

    /// All rows that carry information.
    fn rows(&self) -> Vec<String>;

    /// The number of claims in the largest case.
    fn max_waiters(&self) -> usize {
        suite::max_waiters_or(CROWD)
    }
}

/// Runs the suite. More than `min_passed` cases must apply and pass.
pub(crate) fn assert_conforms(database: &impl Conforms, min_passed: usize) {
    let report = suite::engine(&Adapter(database));
    assert!(report.passed.len() > min_passed, "{report}");
}

struct Adapter<'a, D>(&'a D);

impl<D: Conforms> Harness for Adapter<'_, D> {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine: Arc<dyn Engine> = self.0.client();
        Box::pin(std::future::ready(engine))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(self.0.disturb(kind)))
    }

    fn parallel_cases(&self) -> usize {
        AT_ONCE
    }

    fn max_waiters(&self) -> usize {
        self.0.max_waiters()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.0.rows()))
    }
}

//! The conformance suite on a table of another program.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine};
use leasehold_sql::Layout;
use leasehold_testkit::suite::{self, Disturbance, Harness, Stored, wait_for_no_leftovers};

use super::{
    Site,
    numbered::{Numbered, Numbers},
    table,
};
use crate::until::PATIENCE;

/// How many cases run at the same time: they mostly wait for leases to end.
const AT_ONCE: usize = 8;
/// The number of claims in the largest case: each of them asks by itself.
const CROWD: usize = 40;

struct Adapter<'a, S> {
    site: &'a S,
    layout: Layout,
    numbers: Numbers,
}

/// Runs the suite. At least `min_passed` cases must apply and pass.
pub(crate) fn assert_conforms(site: &impl Site, layout: Layout, min_passed: usize) {
    site.query(site.sql().wide_table(layout));
    let report = suite::engine(&Adapter { site, layout, numbers: Numbers::default() });
    assert!(report.passed.len() >= min_passed, "{layout:?}: {report}");
}

impl<S: Site> Harness for Adapter<'_, S> {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine = self.site.engine(table(self.layout));
        let engine: Arc<dyn Engine> = if self.layout == Layout::Liquibase {
            Arc::new(Numbered { engine, numbers: self.numbers.clone() })
        } else {
            engine
        };
        Box::pin(std::future::ready(engine))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => {
                drop(self.site.query(&format!("DELETE FROM {}", self.site.sql().table(self.layout))))
            }
            Disturbance::Cut => self.site.cut(),
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn parallel_cases(&self) -> usize {
        AT_ONCE
    }

    fn max_waiters(&self) -> usize {
        CROWD
    }

    fn stored(&self) -> Stored {
        match self.layout {
            Layout::Symfony => Stored::HashedNames,
            Layout::Insert => Stored::NamesOnly,
            _ => Stored::Everything,
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.site.query(self.site.sql().held_rows(self.layout))))
    }
}

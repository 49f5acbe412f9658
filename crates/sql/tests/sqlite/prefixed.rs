//! Names with a prefix.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Locks, MAX_NAME_BYTES};
use leasehold_sql::Prefixed;
use leasehold_testkit::suite::{self, Disturbance, Harness, wait_for_no_leftovers};

use crate::{
    harness::Conforms,
    rig::{PATIENCE, Rig},
};

const PREFIX: &str = "team%_a:";
/// The number of claims in the largest case.
const CROWD: usize = 100;

/// Clients whose names have a prefix.
struct PrefixedRig(Rig);

fn prefixed(rig: &Rig, prefix: &str) -> Arc<dyn Engine> {
    Arc::new(Prefixed::new(rig.engine(), prefix).unwrap())
}

impl Harness for PrefixedRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(std::future::ready(prefixed(&self.0, PREFIX)))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(self.0.disturb(kind)))
    }

    fn max_waiters(&self) -> usize {
        suite::max_waiters_or(CROWD)
    }

    fn longest_name(&self) -> usize {
        MAX_NAME_BYTES - PREFIX.len()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.0.remaining_rows()))
    }
}

#[test]
fn an_engine_with_a_prefix_conforms() {
    let report = suite::engine(&PrefixedRig(Rig::new()));
    assert!(report.passed.len() > 80, "{report}");
}

/// Programs with different prefixes do not exclude each other; the same prefix is the same names.
#[test]
fn a_prefix_makes_names_of_its_own() {
    let rig = Rig::new();
    let locks = |prefix: &str| Locks::builder(prefixed(&rig, prefix)).build();
    let (plain, one, two) = (locks(""), locks("one:"), locks("two:"));
    let guards =
        [&plain, &one, &two].map(|locks| locks.mutex("n").blocking().acquire_within(PATIENCE).unwrap());
    for locks in [&plain, &one, &two, &locks("one:")] {
        assert!(locks.mutex("n").blocking().try_acquire().unwrap_err().is_taken());
    }
    assert!(plain.mutex("one:n").blocking().try_acquire().unwrap_err().is_taken());
    let keys = |locks: &Locks| {
        let views = locks.list_blocking("").unwrap();
        views.into_iter().map(|view| format!("{} {}", view.name, view.key)).collect::<Vec<_>>()
    };
    assert_eq!(keys(&one), ["n one:n"]);
    assert_eq!(keys(&plain), ["n n", "one:n one:n", "two:n two:n"]);
    let view = two.show_blocking("n").unwrap();
    assert_eq!((view.name.as_str(), view.key.as_str(), view.holders.len()), ("n", "two:n", 1));
    for guard in guards {
        guard.release_blocking().unwrap();
    }
    let long = "x".repeat(510);
    plain.mutex(&long).blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
    let error = one.mutex(&long).blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("508 bytes"), "{error}");
    for prefix in ["a\nb", &"x".repeat(129)] {
        assert!(Prefixed::new(rig.engine(), prefix).unwrap_err().is_misconfigured());
    }
}

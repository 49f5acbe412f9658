//! Retries tests of leases when a busy machine took too much of the lease time.

use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// How often a test of a lease is tried.
const TRIES: u32 = 5;

/// Runs a test of a hold that must stay valid, with this lease time. If the hold was lost, and the machine withheld
/// more than a quarter of the lease time, runs the test again with twice the lease time.
///
/// # Panics
/// If the hold was lost although the machine withheld at most a quarter of the lease time, or if the hold was lost in
/// every one of `TRIES` runs. The message begins with `what`.
#[track_caller]
pub fn with_longer_leases(lease: Duration, what: &str, holds: impl Fn(Duration) -> bool) {
    run_tries((0..TRIES).map(|number| lease * 2_u32.pow(number)), what, holds, withheld);
}

/// Runs a test of a hold that must stay valid, with a lease whose length the test cannot choose. Repeats the test as
/// [`with_longer_leases`] does, with the same lease in every try.
///
/// # Panics
/// If the hold was lost although the machine withheld at most a quarter of the lease time, or if the hold was lost in
/// every one of `TRIES` runs. The message begins with `what`.
#[track_caller]
pub fn with_retries(lease: Duration, what: &str, holds: impl Fn() -> bool) {
    run_tries((0..TRIES).map(|_| lease), what, |_| holds(), withheld);
}

/// The part of the elapsed time that the machine did not give to this process.
fn withheld(watch: &Stopwatch) -> Duration {
    watch.elapsed().saturating_sub(watch.given())
}

/// Runs the test with each lease in turn, until `holds` returns true. Panics if it returned false although the machine
/// withheld at most a quarter of the lease time.
#[track_caller]
fn run_tries(
    leases: impl Iterator<Item = Duration>,
    what: &str,
    holds: impl Fn(Duration) -> bool,
    withheld: impl Fn(&Stopwatch) -> Duration,
) {
    let mut last_lease = Duration::ZERO;
    for lease in leases {
        let watch = Stopwatch::start();
        if holds(lease) {
            return;
        }
        let withheld = withheld(&watch);
        assert!(withheld > lease / 4, "{what}: not with {lease:?}, of which the machine took {withheld:?}");
        last_lease = lease;
    }
    panic!("{what}: not in {TRIES} tries, the last with {last_lease:?}");
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    #[should_panic(expected = "it lives: not with 3600s")]
    fn a_failure_with_enough_machine_time_is_final() {
        with_longer_leases(Duration::from_secs(3600), "it lives", |_| false);
    }

    #[test]
    #[should_panic(expected = "it lives: not with 3600s")]
    fn with_tries_does_not_repeat_a_final_failure() {
        with_retries(Duration::from_secs(3600), "it lives", || false);
    }

    #[test]
    fn a_failure_for_lack_of_time_is_retried_with_a_longer_lease() {
        let (lease, leases) = (Duration::from_secs(1), RefCell::new(Vec::new()));
        let holds = |lease| {
            leases.borrow_mut().push(lease);
            leases.borrow().len() == 3
        };
        run_tries((0..TRIES).map(|number| lease * 2_u32.pow(number)), "it lives", holds, |_| lease * 2);
        assert_eq!(*leases.borrow(), [lease, lease * 2, lease * 4]);
    }

    #[test]
    #[should_panic(expected = "it lives: not in 5 tries, the last with 1s")]
    fn the_number_of_tries_is_limited() {
        let lease = Duration::from_secs(1);
        run_tries((0..TRIES).map(|_| lease), "it lives", |_| false, |_| lease);
    }
}

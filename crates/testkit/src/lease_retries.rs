//! Retries tests of leases when a busy machine took too much of the lease time.

use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// How often a test of a lease is tried.
const TRIES: u32 = 5;

/// Runs a test of a hold that must stay valid, with a lease of this time. If the hold was lost and the machine withheld
/// much of that time, runs the test again with twice the time.
///
/// # Panics
/// If the hold was lost although the machine gave the time, or in every try. The message begins with `what`.
#[track_caller]
pub fn with_longer_leases(lease: Duration, what: &str, lives: impl Fn(Duration) -> bool) {
    tried((0..TRIES).map(|number| lease * 2_u32.pow(number)), what, lives, withheld);
}

/// The same, with a lease whose length the test cannot choose: every try has the same lease.
///
/// # Panics
/// If the hold was lost although the machine gave the time, or in every try. The message begins with `what`.
#[track_caller]
pub fn with_retries(lease: Duration, what: &str, lives: impl Fn() -> bool) {
    tried((0..TRIES).map(|_| lease), what, |_| lives(), withheld);
}

/// The time that the machine has withheld.
fn withheld(watch: &Stopwatch) -> Duration {
    watch.elapsed().saturating_sub(watch.given())
}

#[track_caller]
fn tried(
    leases: impl Iterator<Item = Duration>,
    what: &str,
    lives: impl Fn(Duration) -> bool,
    withheld: impl Fn(&Stopwatch) -> Duration,
) {
    let mut last = Duration::ZERO;
    for lease in leases {
        let watch = Stopwatch::start();
        if lives(lease) {
            return;
        }
        let withheld = withheld(&watch);
        assert!(withheld > lease / 4, "{what}: not with {lease:?}, of which the machine took {withheld:?}");
        last = lease;
    }
    panic!("{what}: not in {TRIES} tries, the last with {last:?}");
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
        let lives = |lease| {
            leases.borrow_mut().push(lease);
            leases.borrow().len() == 3
        };
        tried((0..TRIES).map(|number| lease * 2_u32.pow(number)), "it lives", lives, |_| lease * 2);
        assert_eq!(*leases.borrow(), [lease, lease * 2, lease * 4]);
    }

    #[test]
    #[should_panic(expected = "it lives: not in 5 tries, the last with 1s")]
    fn the_number_of_tries_is_limited() {
        let lease = Duration::from_secs(1);
        tried((0..TRIES).map(|_| lease), "it lives", |_| false, |_| lease);
    }
}

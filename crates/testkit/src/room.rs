//! Leases with room for what a busy machine does to their clients.

use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// How many leases are tried, each twice as long as the one before it.
const TRIES: u32 = 5;

/// Runs a test of a hold that must live on, with a lease of this time. Where the machine withheld much of that time, and the hold
/// was lost, it runs again with twice as much.
///
/// # Panics
/// When the hold was lost though the machine gave the time, or each time. The message begins with `what`.
#[track_caller]
pub fn with_room(lease: Duration, what: &str, lives: impl Fn(Duration) -> bool) {
    let mut lease = lease;
    for _ in 0..TRIES {
        let watch = Stopwatch::start();
        if lives(lease) {
            return;
        }
        let withheld = watch.elapsed().saturating_sub(watch.given());
        assert!(withheld > lease / 4, "{what}: not with {lease:?}, of which the machine took {withheld:?}");
        lease *= 2;
    }
    panic!("{what}: not in {TRIES} tries, the last with {:?}", lease / 2);
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, thread::sleep};

    use super::*;

    #[test]
    #[should_panic(expected = "it lives: not with 3600s")]
    fn what_fails_on_a_machine_that_gives_the_time_fails() {
        with_room(Duration::from_secs(3600), "it lives", |_| false);
    }

    #[test]
    fn what_fails_for_want_of_time_is_tried_with_more() {
        let leases = Cell::new(Vec::new());
        // The yardstick has not counted what has just begun, as if it had been withheld.
        let lease = Duration::from_millis(2);
        with_room(lease, "it lives", |lease| {
            leases.set([leases.take(), vec![lease]].concat());
            sleep(lease);
            let tries = leases.take();
            let lives = tries.len() == 2;
            leases.set(tries);
            lives
        });
        assert_eq!(leases.take(), [lease, lease * 2]);
    }
}

//! Waits for events that are certain to come.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long an event that is certain to come may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `done` returns true.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

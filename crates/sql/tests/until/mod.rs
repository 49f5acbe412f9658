//! Waiting for what is certain to come, in the tests of every server.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long what is certain to come may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `done`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

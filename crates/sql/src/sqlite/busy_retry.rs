//! Waits for a file that other processes are using.

use std::time::Duration;

use leasehold_core::{Clock, Fault};

use crate::{database::Failed, runtime};

/// The pause between two attempts to get the file, until a process has waited for long: about the time of a commit, and
/// the same for all processes. With this pause, the unluckiest of four processes that write all the time waits five
/// times longer than usual (measured); with pauses that grow from the start, twenty times. With half of this pause, the
/// attempts use the time that commits need. With twice this pause, a process that writes again right after its commit
/// always gets the file before the waiting processes.
const MIN_PAUSE: Duration = Duration::from_micros(150);
/// After a long wait a pause is this share (1/64) of the time waited so far, because there is no hurry any more.
const PAUSE_SHARE: u32 = 64;
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// Repeats an attempt while other processes use the file, for `limit`.
pub(super) fn retry_while_busy<T>(
    clock: &dyn Clock,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let begin = clock.now();
    // The pauses are counted as well, in case the clock does not advance.
    let mut paused = Duration::ZERO;
    loop {
        match attempt() {
            Err(failed) if failed.fault == Fault::Retry => {
                let waited = clock.now().since(begin).max(paused);
                if waited >= limit {
                    return Err(failed);
                }
                let pause = (waited / PAUSE_SHARE).clamp(MIN_PAUSE, MAX_PAUSE);
                runtime::pause(pause);
                paused += pause;
            }
            done => return done,
        }
    }
}

//! Waits for a file that other processes are using.

use std::time::Duration;

use leasehold_core::{Clock, Fault};

use crate::{database::Failed, runtime};

/// The pause between two attempts: about the time of a commit, the same for old and new waiters. So of four processes
/// that write without a pause none waits twenty times longer than usual (measured: five times), as it happens where
/// pauses grow. With half of this pause the attempts take the time that commits need; with twice as much, processes
/// that write again at once win.
const SHORTEST: Duration = Duration::from_micros(150);
/// A pause is this part of the time waited so far, at most [`LONGEST`]: after a long wait there is no hurry any more.
const SHARE: u32 = 64;
const LONGEST: Duration = Duration::from_millis(10);

/// Repeats an attempt while others are in the way, for `limit`.
pub(super) fn patiently<T>(
    clock: &dyn Clock,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let begin = clock.now();
    // Counted as well, in case the clock does not advance.
    let mut paused = Duration::ZERO;
    loop {
        match attempt() {
            Err(failed) if failed.fault == Fault::Retry => {
                let waited = clock.now().since(begin).max(paused);
                if waited >= limit {
                    return Err(failed);
                }
                let pause = (waited / SHARE).clamp(SHORTEST, LONGEST);
                runtime::pause(pause);
                paused += pause;
            }
            done => return done,
        }
    }
}

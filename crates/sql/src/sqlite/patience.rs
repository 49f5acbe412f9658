//! Waiting for a file that others are using.

use std::time::Duration;

use leasehold_core::{Clock, Fault};

use crate::{database::Failed, runtime};

/// Between two attempts: about what a commit takes, and the same for who waits long and who comes. So of four processes that write
/// without a pause none waits twenty times longer than usual (measured: five times), as it does where the pauses grow; with half
/// of it the attempts cost what the commits need, with twice as much those who write again at once win.
const SHORTEST: Duration = Duration::from_micros(150);
/// Once others write for so long, there is no hurry any more.
const SHARE: u32 = 64;
const LONGEST: Duration = Duration::from_millis(10);

/// Tries again while others are in the way, for `limit`.
pub(super) fn patiently<T>(
    clock: &dyn Clock,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let begin = clock.now();
    // Beside the clock, for one that stands still.
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

//! A stopwatch for tests on a busy machine: it counts the time that the machine gave to the test, not the time of the
//! wall clock.
//!
//! A test that judges by the wall clock fails when other programs take the processors or the disk. A [`Stopwatch`]
//! measures against the yardstick, a thread of the same process. In each round, this thread sleeps and, in some rounds,
//! writes to the disk. The thread counts one beat of 20 ms for each round, however long the round took. While more
//! threads want to run than there are processors, a beat counts less: only the share of a processor that each thread
//! gets.

use std::{
    fs,
    io::{Seek, Write},
    num::NonZero,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How long one round of the yardstick takes on an idle machine.
const BEAT: Duration = Duration::from_millis(20);
/// The yardstick writes to the disk in one of this many rounds.
const BEATS_PER_WRITE: u64 = 10;

/// The time that this machine has given since the yardstick began, in nanoseconds.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// When the stopwatch was started.
    wall: Instant,
    /// The value of [`GIVEN`] when the stopwatch was started.
    given: u64,
}

impl Stopwatch {
    /// Starts to measure now.
    ///
    /// # Panics
    /// If no thread can be started.
    #[must_use]
    pub fn start() -> Self {
        static YARDSTICK: OnceLock<thread::JoinHandle<()>> = OnceLock::new();
        YARDSTICK.get_or_init(|| thread::spawn(yardstick));
        Self { wall: Instant::now(), given: GIVEN.load(Relaxed) }
    }

    /// The time since the start by the wall clock. A test may compare this time only with a lower bound: a busy machine
    /// makes durations longer, so a busy machine cannot break such a bound.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.wall.elapsed()
    }

    /// The time that the machine has given since the start: at most [`Stopwatch::elapsed`], and less on a busy machine.
    #[must_use]
    pub fn given(&self) -> Duration {
        // The current beat is not counted yet. Counted beats may exceed the elapsed time, which is the upper bound.
        let counted = Duration::from_nanos(GIVEN.load(Relaxed) - self.given);
        counted.min(self.elapsed())
    }

    /// Fails the test unless the machine has given less than `limit` since the start.
    ///
    /// # Panics
    /// If the machine has given `limit` or more. The message begins with `what`.
    #[track_caller]
    pub fn assert_within(&self, limit: Duration, what: &str) {
        let (given, elapsed) = (self.given(), self.elapsed());
        assert!(
            given < limit,
            "{what}: took {given:?} of machine time ({elapsed:?} by the clock), allowed {limit:?}"
        );
    }
}

/// Adds to [`GIVEN`] forever. Runs on the yardstick thread.
fn yardstick() {
    let cores = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let mut file = tempfile::tempfile().ok();
    for beat in 1_u64.. {
        thread::sleep(BEAT);
        if beat.is_multiple_of(BEATS_PER_WRITE)
            && let Some(file) = &mut file
        {
            // A disk that refuses the write gives no measure; the beats go on without it.
            let _ = file.rewind().and_then(|()| file.write_all(&[0; 512])).and_then(|()| file.sync_data());
        }
        let competitors = runnable().max(cores);
        GIVEN.fetch_add(BEAT.as_nanos() as u64 * cores / competitors, Relaxed);
    }
}

/// How many threads of the whole machine are runnable now.
fn runnable() -> u64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = text.split(' ').nth(3).and_then(|tasks| tasks.split('/').next());
    running.and_then(|count| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_time_never_exceeds_the_wall_clock() {
        let watch = Stopwatch::start();
        while watch.given() < BEAT {
            thread::sleep(BEAT / 4);
        }
        assert!(watch.given() <= watch.elapsed());
        watch.assert_within(Duration::from_secs(3600), "a beat");
    }

    #[test]
    #[should_panic(expected = "a beat: took")]
    fn exceeding_the_limit_fails() {
        let watch = Stopwatch::start();
        while watch.given() < BEAT * 2 {
            thread::sleep(BEAT / 4);
        }
        watch.assert_within(BEAT, "a beat");
    }

    #[test]
    fn runnable_threads_are_counted() {
        assert!(runnable() >= 1, "this one at least");
    }
}

//! The environment of the keeper: a clock, randomness, and sleeping.
#![expect(clippy::disallowed_methods, reason = "the one source of time and randomness")]

use std::{sync::Arc, time::Duration};

use crate::{Clock, Instant, Lineage, driver::shared::Shared};

/// A source of randomness for claim ids.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `buf` with random bytes that cannot be guessed or repeated.
    fn fill(&self, buf: &mut [u8]);
}

/// A clock and a source of randomness. [`Env::system`] is the real one; tests and the simulation provide their own.
#[derive(Clone)]
pub struct Env {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness for claim ids.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// The boot-time clock and the randomness of the operating system.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(BootClock), entropy: Arc::new(OsEntropy) }
    }

    /// A new lineage of tokens, unlike every other.
    #[must_use]
    pub fn lineage(&self) -> Lineage {
        Lineage::new(u128::from_be_bytes(self.random()))
    }

    /// Sixteen random bytes, for an id or a key.
    pub(crate) fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// A random number that spreads out actions of many clients.
    pub(crate) fn jitter(&self) -> u32 {
        let mut bytes = [0; 4];
        self.entropy.fill(&mut bytes);
        u32::from_ne_bytes(bytes)
    }
}

/// The instant of the standard library that is `duration` after now.
pub(crate) fn system_instant_in(duration: Duration) -> std::time::Instant {
    let now = std::time::Instant::now();
    // A time that the type cannot express is longer than any lease.
    now.checked_add(duration).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)))
}

/// The time of day since 1970. Only for what has to outlive a reboot of the machine, and for schedules: it never
/// decides about a hold.
pub(crate) fn time_of_day() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Sleeps for `duration` on tokio's runtime.
pub(crate) fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
    tokio::time::sleep(duration)
}

/// The longest sleep before the clock is read again: runtime timers stop during a suspension of the machine, the
/// boot-time clock does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Shared {
    /// Sleeps, in a task of the keeper, until the clock reaches `at`.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        loop {
            let time_left = at.since(self.now());
            if time_left.is_zero() {
                return;
            }
            self.keeper.sleep(time_left.min(LONGEST_SLEEP)).await;
        }
    }

    /// The result of `work`, or `None` after `limit`.
    pub(crate) async fn with_timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.keeper.sleep(limit) => None,
        }
    }
}

/// R2: a clock that counts the time for which the machine was suspended, and never steps.
struct BootClock;

impl Clock for BootClock {
    #[cfg(unix)]
    fn now(&self) -> Instant {
        // `CLOCK_MONOTONIC` of Linux stops during a suspension. That of macOS does not, and macOS has no other.
        #[cfg(target_os = "linux")]
        const ID: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        const ID: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;
        let now = nix::time::clock_gettime(ID).expect("every supported system has this clock");
        Instant::from_nanos(Duration::from(now).as_nanos() as u64)
    }

    #[cfg(not(unix))]
    fn now(&self) -> Instant {
        instant_of_process()
    }

    fn time_of_day(&self) -> Duration {
        time_of_day()
    }
}

/// The time since the first call in this process, by the clock of the standard library. On Windows this is the
/// performance counter, which counts the time of a suspension. No engine that works there shares an [`Instant`] with
/// another process.
#[cfg(any(not(unix), test))]
fn instant_of_process() -> Instant {
    /// The first call, so late that times before it can be expressed.
    const FIRST: Duration = Duration::from_secs(86_400);
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let since_start = START.get_or_init(std::time::Instant::now).elapsed();
    Instant::from_nanos((FIRST + since_start).as_nanos() as u64)
}

struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, buf: &mut [u8]) {
        getrandom::fill(buf).expect("the operating system gives randomness once it has booted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_systems_without_a_boot_clock_advances_and_begins_late_enough() {
        let first = instant_of_process();
        assert!(first >= Instant::from_nanos(0).after(Duration::from_secs(86_400)));
        let later = std::iter::repeat_with(instant_of_process).find(|now| *now > first);
        assert!(later.is_some_and(|later| instant_of_process() >= later));
    }
}

//! The outside world as the keeper sees it: a clock, randomness, and sleeping.
#![expect(clippy::disallowed_methods, reason = "the door through which time and randomness come in")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{Clock, Instant, Lineage, process, shared::Shared};

/// Where claim ids come from.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `buf` with random bytes that nobody can guess or repeat.
    fn fill(&self, buf: &mut [u8]);
}

/// A clock and a source of randomness. [`Env::system`] is the real one; tests and the simulation bring their own.
#[derive(Clone)]
pub struct Env {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where claim ids come from.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// The boot-time clock and the randomness of the operating system.
    #[must_use]
    pub fn system() -> Self {
        // Before any randomness is kept: a forked child must not use what its parent uses.
        process::watch(super::farewell);
        Self { clock: Arc::new(BootClock), entropy: Arc::new(OsEntropy::default()) }
    }

    /// A new lineage of tokens, unlike every other.
    #[must_use]
    pub fn lineage(&self) -> Lineage {
        Lineage::new(u128::from_be_bytes(self.random()))
    }

    /// Sixteen random bytes.
    pub(crate) fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// Spreads out what many would do at the same time.
    pub(crate) fn jitter(&self) -> u32 {
        let mut bytes = [0; 4];
        self.entropy.fill(&mut bytes);
        u32::from_ne_bytes(bytes)
    }
}

/// Waits for `duration` on tokio's runtime.
pub(crate) fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
    tokio::time::sleep(duration)
}

/// The longest sleep in one piece: runtime timers stop while the machine is suspended, the boot-time clock does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Shared {
    /// Waits, in a task of the keeper, until the clock says `at`.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            self.keeper.sleep(left.min(LONGEST_SLEEP)).await;
        }
    }

    /// What comes of `work` within `limit`.
    pub(crate) async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.keeper.sleep(limit) => None,
        }
    }
}

/// `CLOCK_BOOTTIME`: counts suspended time, knows no steps.
struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        #[cfg(target_os = "linux")]
        const ID: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        const ID: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;
        let now = nix::time::clock_gettime(ID).expect("every supported system has this clock");
        Instant::from_nanos(Duration::from(now).as_nanos() as u64)
    }
}

/// Asks the operating system for several claims at once: the call costs more than all else that the id of a claim needs.
#[derive(Default)]
struct OsEntropy(Mutex<Pool>);

/// Random bytes that nobody has used, at the end.
struct Pool {
    bytes: [u8; POOL],
    left: usize,
    /// Of which process.
    generation: u32,
}

/// Enough for a dozen claims, each with the pause of its next try.
const POOL: usize = 256;

impl Default for Pool {
    fn default() -> Self {
        Self { bytes: [0; POOL], left: 0, generation: process::generation() }
    }
}

impl Entropy for OsEntropy {
    fn fill(&self, buf: &mut [u8]) {
        if buf.len() > POOL {
            return os_random(buf);
        }
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = process::generation();
        if pool.left < buf.len() || pool.generation != here {
            os_random(&mut pool.bytes);
            (pool.left, pool.generation) = (POOL, here);
        }
        pool.left -= buf.len();
        let left = pool.left;
        let used = &mut pool.bytes[left..left + buf.len()];
        buf.copy_from_slice(used);
        used.fill(0);
    }
}

fn os_random(buf: &mut [u8]) {
    getrandom::fill(buf).expect("the operating system gives randomness once it has booted");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_random_bytes_are_given_twice() {
        let entropy = OsEntropy::default();
        let mut seen = HashSet::new();
        for _ in 0..POOL {
            let (mut id, mut pause) = ([0; 16], [0; 4]);
            entropy.fill(&mut id);
            entropy.fill(&mut pause);
            assert!(seen.insert(id));
        }
        let mut many = [0; POOL + 1];
        entropy.fill(&mut many);
        assert!(many.iter().any(|&byte| byte != 0));
    }

    #[test]
    fn a_forked_process_has_random_bytes_of_its_own() {
        let entropy = OsEntropy::default();
        entropy.fill(&mut [0; 16]);
        let kept = {
            let mut pool = entropy.0.lock().unwrap();
            // As a fork does, seen from the child.
            pool.generation = pool.generation.wrapping_sub(1);
            pool.bytes[pool.left - 16..pool.left].to_vec()
        };
        let mut id = [0; 16];
        entropy.fill(&mut id);
        assert_ne!(id[..], kept[..]);
    }
}

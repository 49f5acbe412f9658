//! A clock that panics in one task of an engine. The clock is the only part of such a task that a test controls.

use std::{
    backtrace::Backtrace,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use leasehold_core::{Clock, Env, Instant};

/// A clock that panics once, when code of a given module reads the time.
pub struct PanicClock {
    inner: Arc<dyn Clock>,
    /// The name of the module, as in a backtrace.
    module: &'static str,
    /// Whether reads of the clock take a backtrace. If the backtrace shows the module, the read panics, unless one has
    /// panicked already.
    armed: AtomicBool,
    /// Whether the panic has happened.
    panicked: AtomicBool,
    /// How often the module read the time after the panic.
    reads_after_panic: AtomicUsize,
}

impl PanicClock {
    /// The system's environment with this clock in place of the system's clock. The clock does not panic before it is
    /// armed.
    #[must_use]
    pub fn new(module: &'static str) -> (Arc<Self>, Env) {
        let env = Env::system();
        let (armed, panicked, reads_after_panic) = Default::default();
        let clock = Arc::new(Self { inner: env.clock, module, armed, panicked, reads_after_panic });
        (Arc::clone(&clock), Env { clock, ..env })
    }

    /// Makes the clock panic at the next read by the module. From now on every read is slow, because it takes a
    /// backtrace, until [`is_asked_again`](Self::is_asked_again) returns true.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Whether the clock has panicked.
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Whether the module read the time again after the panic. If so, the clock stops taking backtraces.
    pub fn is_asked_again(&self) -> bool {
        let again = self.reads_after_panic.load(Ordering::SeqCst) > 0;
        if again {
            self.armed.store(false, Ordering::SeqCst);
        }
        again
    }
}

impl Clock for PanicClock {
    fn now(&self) -> Instant {
        if self.armed.load(Ordering::SeqCst) && Backtrace::force_capture().to_string().contains(self.module) {
            assert!(self.panicked.swap(true, Ordering::SeqCst), "a test wants this panic");
            self.reads_after_panic.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod maintenance {
        pub(super) fn looks(clock: &dyn leasehold_core::Clock) {
            clock.now();
        }
    }

    #[test]
    fn the_clock_panics_once_and_only_in_its_module() {
        let (clock, env) = PanicClock::new("panic_clock::tests::maintenance::");
        maintenance::looks(&*env.clock);
        clock.arm();
        env.clock.now();
        assert!(!clock.has_panicked());
        let asked = Arc::clone(&env.clock);
        std::thread::spawn(move || maintenance::looks(&*asked)).join().unwrap_err();
        assert!(clock.has_panicked() && !clock.is_asked_again());
        maintenance::looks(&*env.clock);
        assert!(clock.is_asked_again());
    }
}

//! A clock at which one task of an engine falls: the only thing of such a task that a test reaches from outside.

use std::{
    backtrace::Backtrace,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use leasehold_core::{Clock, Env, Instant};

/// Panics once, when code of a module asks what time it is.
pub struct Pitfall {
    inner: Arc<dyn Clock>,
    /// As a backtrace names the code.
    under: &'static str,
    open: AtomicBool,
    fell: AtomicBool,
    passed: AtomicUsize,
}

impl Pitfall {
    /// The environment of the system, with this clock, for code of the module `under`. Closed at first.
    #[must_use]
    pub fn new(under: &'static str) -> (Arc<Self>, Env) {
        let env = Env::system();
        let (open, fell, passed) = Default::default();
        let pitfall = Arc::new(Self { inner: env.clock, under, open, fell, passed });
        (Arc::clone(&pitfall), Env { clock: pitfall, ..env })
    }

    /// Whoever comes by next falls. Slow from now on, for everybody who asks for the time.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Whether somebody fell.
    pub fn took_one(&self) -> bool {
        self.fell.load(Ordering::SeqCst)
    }

    /// Whether somebody came by after that. Then nobody is watched any more.
    pub fn is_passed_again(&self) -> bool {
        let again = self.passed.load(Ordering::SeqCst) > 0;
        if again {
            self.open.store(false, Ordering::SeqCst);
        }
        again
    }
}

impl Clock for Pitfall {
    fn now(&self) -> Instant {
        if self.open.load(Ordering::SeqCst) && Backtrace::force_capture().to_string().contains(self.under) {
            assert!(self.fell.swap(true, Ordering::SeqCst), "a test has it fall here");
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod minder {
        pub(super) fn looks(clock: &dyn leasehold_core::Clock) {
            clock.now();
        }
    }

    #[test]
    fn only_code_of_the_module_falls_and_once() {
        let (pitfall, env) = Pitfall::new("pitfall::tests::minder::");
        minder::looks(&*env.clock);
        pitfall.open();
        env.clock.now();
        assert!(!pitfall.took_one());
        let clock = Arc::clone(&env.clock);
        std::thread::spawn(move || minder::looks(&*clock)).join().unwrap_err();
        assert!(pitfall.took_one() && !pitfall.is_passed_again());
        minder::looks(&*env.clock);
        assert!(pitfall.is_passed_again());
    }
}

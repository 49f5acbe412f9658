//! The one clock of a kit: the time of the tokio runtimes that its processes live in, or a time that the kit moves.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_core::{Clock, Instant};
use tokio::{runtime::Handle, time};

/// The clock begins here, so that nothing is before its begin.
const BEGIN: Duration = Duration::from_secs(1000);
/// The time of day at the begin: 2026-01-01 in UTC, for schedules.
const BEGIN_OF_DAY: Duration = Duration::from_secs(1_767_225_600);

#[derive(Default)]
pub(super) struct KitClock(Mutex<State>);

#[derive(Default)]
struct State {
    /// The time that has passed, as far as known.
    passed: Duration,
    /// By how much the clock was set forward in addition.
    jumped: Duration,
    runtimes: Vec<RuntimeTime>,
}

/// The time of one tokio runtime.
struct RuntimeTime {
    handle: Handle,
    /// The time of the runtime at the moment at which the kit began to follow it.
    began: time::Instant,
    /// The time of the kit at that moment.
    passed_before: Duration,
}

impl State {
    /// The time of the kit: it follows the runtime that is ahead.
    fn passed(&mut self) -> Duration {
        for runtime in &self.runtimes {
            let _entered = runtime.handle.enter();
            self.passed = self.passed.max(runtime.passed_before + runtime.began.elapsed());
        }
        self.passed
    }
}

impl KitClock {
    /// Follows the time of the tokio runtime of the caller from now on, and returns this runtime, if there is one.
    pub(super) fn follow_current_runtime(&self) -> Option<Handle> {
        let handle = Handle::try_current().ok()?;
        let mut state = self.lock();
        if !state.runtimes.iter().any(|runtime| runtime.handle.id() == handle.id()) {
            let passed_before = state.passed();
            let began = time::Instant::now();
            state.runtimes.push(RuntimeTime { handle: handle.clone(), began, passed_before });
        }
        Some(handle)
    }

    /// The time since the clock began.
    pub(super) fn elapsed(&self) -> Duration {
        let mut state = self.lock();
        state.passed() + state.jumped
    }

    /// Sets the clock forward to `at`.
    pub(super) fn move_to(&self, at: Instant) {
        let mut state = self.lock();
        let target = Duration::from_nanos(at.as_nanos()).saturating_sub(BEGIN + state.jumped);
        state.passed = state.passed.max(target);
    }

    /// Sets the clock forward by `time`, without the timers on the way.
    pub(super) fn jump(&self, time: Duration) {
        self.lock().jumped += time;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for KitClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(0).after(BEGIN + self.elapsed())
    }

    fn time_of_day(&self) -> Duration {
        BEGIN_OF_DAY + self.elapsed()
    }
}

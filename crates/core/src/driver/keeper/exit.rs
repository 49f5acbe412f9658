//! Closing, and the end of the process: what is pending gets a bounded time to be finished.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use crate::driver::shared::Shared;

/// How long the end of the process waits for releases to be sent: a first program that ends after `main` must not
/// leave its lock taken until the lease runs out.
const FAREWELL: Duration = Duration::from_secs(1);
/// The same for an engine that does not answer: what can be sent is sent by then, and an answer is not to be expected.
const FAREWELL_UNHEARD: Duration = Duration::from_millis(50);
/// How often it is looked meanwhile whether the engine has said that it will not do it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Counts what must not be cut off: releases on their way, and claims that may have to be undone.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: Mutex<Count>,
    zero: Condvar,
}

#[derive(Default)]
struct Count {
    pending: usize,
    /// Threads that wait for zero: without any, nobody is woken, which costs a system call.
    awaited: usize,
}

/// One of them, until it is dropped.
pub(crate) struct One(Arc<Inner>);

impl Pending {
    pub(crate) fn one(&self) -> One {
        self.lock().pending += 1;
        One(Arc::clone(&self.0))
    }

    pub(crate) fn is_at_most(&self, count: usize) -> bool {
        self.lock().pending <= count
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.lock().pending == 0
    }

    /// Blocks until nothing is pending, at most for `limit`; whether that is so.
    fn block_until_zero(&self, limit: Duration) -> bool {
        let mut count = self.lock();
        count.awaited += 1;
        let wait = self.0.zero.wait_timeout_while(count, limit, |count| count.pending > 0);
        let (mut count, _) = wait.unwrap_or_else(PoisonError::into_inner);
        count.awaited -= 1;
        count.pending == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Count> {
        self.0.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.pending -= 1;
        if count.pending == 0 && count.awaited > 0 {
            self.0.zero.notify_all();
        }
    }
}

impl Shared {
    /// How long the end of the process waits for what is pending here, as far as is known now.
    pub(crate) fn farewell(&self) -> Duration {
        let answers = self.was_reached() && !self.silent.load(Ordering::Relaxed);
        if answers { FAREWELL } else { FAREWELL_UNHEARD }
    }
}

static LIVING: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// The exit of the process will wait for this one.
pub(crate) fn register(shared: &Arc<Shared>) {
    let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
    living.retain(|other| other.strong_count() > 0);
    living.push(Arc::downgrade(shared));
}

/// Runs at the exit of the process: ends all waits, and lets the keepers send what is pending, for a second at most.
#[expect(clippy::disallowed_methods, reason = "the exit of the process is the keeper's last act")]
pub(crate) fn farewell() {
    // A lock that is held here was held at a fork, or by a thread that will not go on: do not hang the exit.
    let Ok(living) = LIVING.try_lock() else { return };
    let begin = std::time::Instant::now();
    let homes: Vec<_> = living.iter().filter_map(Weak::upgrade).filter(|shared| shared.is_home()).collect();
    drop(living);
    for shared in &homes {
        shared.stop_waiting();
    }
    for shared in &homes {
        loop {
            let left = shared.farewell().saturating_sub(begin.elapsed());
            if left.is_zero() || shared.pending.block_until_zero(left.min(LOOK_AGAIN)) {
                break;
            }
        }
    }
}

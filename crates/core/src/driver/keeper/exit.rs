//! Closing and the end of the process: pending work gets a bounded time to finish.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak, atomic::Ordering},
    time::Duration,
};

use crate::driver::shared::Shared;

/// How long the exit of the process waits for pending releases: even a simple program that returns from `main` must not
/// leave its lock taken until the lease runs out.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// How long the exit waits for an engine that does not answer: enough to send all pending releases.
const EXIT_WAIT_UNRESPONSIVE: Duration = Duration::from_millis(50);
/// How often the waiting exit checks whether the engine has stopped answering.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Counts the work that must not be cut off: cleanups, and claims that may have to be undone.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: Mutex<Count>,
    /// Notified when the count becomes zero.
    became_zero: Condvar,
}

#[derive(Default)]
struct Count {
    /// How many pieces of work are pending.
    pending: usize,
    /// How many threads wait for zero: when there are none, the wake-up and its system call are skipped.
    waiting_threads: usize,
}

/// One piece of pending work: it counts until it is dropped.
pub(crate) struct PendingItem(Arc<Inner>);

impl Pending {
    /// Counts one more piece of pending work.
    pub(crate) fn add(&self) -> PendingItem {
        self.lock().pending += 1;
        PendingItem(Arc::clone(&self.0))
    }

    /// Whether at most `count` pieces of work are pending.
    pub(crate) fn is_at_most(&self, count: usize) -> bool {
        self.lock().pending <= count
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.lock().pending == 0
    }

    /// Blocks until nothing is pending, for at most `limit`. False if something is still pending then.
    fn block_until_zero(&self, limit: Duration) -> bool {
        let mut count = self.lock();
        count.waiting_threads += 1;
        let wait = self.0.became_zero.wait_timeout_while(count, limit, |count| count.pending > 0);
        let (mut count, _) = wait.unwrap_or_else(PoisonError::into_inner);
        count.waiting_threads -= 1;
        count.pending == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Count> {
        self.0.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingItem {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.pending -= 1;
        if count.pending == 0 && count.waiting_threads > 0 {
            self.0.became_zero.notify_all();
        }
    }
}

impl Shared {
    /// How long the end of the process waits for the pending work of this `Locks`, as known now.
    pub(crate) fn exit_wait(&self) -> Duration {
        let engine_answers = self.was_reached() && !self.unresponsive.load(Ordering::Relaxed);
        if engine_answers { EXIT_WAIT } else { EXIT_WAIT_UNRESPONSIVE }
    }
}

/// Every `Locks` of this process.
static REGISTERED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Registers a `Locks` for which the exit of the process will wait.
pub(crate) fn register(shared: &Arc<Shared>) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|other| other.strong_count() > 0);
    registered.push(Arc::downgrade(shared));
}

/// Runs at the exit of the process: ends all waits, and lets the keepers send pending work, for a second at most.
#[expect(clippy::disallowed_methods, reason = "the exit of the process is the keeper's last act")]
pub(crate) fn wait_at_exit() {
    // If the mutex is locked, it was locked when this process was forked, or by a thread that will not continue: do not
    // block the exit.
    let Ok(registered) = REGISTERED.try_lock() else { return };
    let started = std::time::Instant::now();
    let own_shared: Vec<_> =
        registered.iter().filter_map(Weak::upgrade).filter(|shared| shared.is_own_process()).collect();
    drop(registered);
    for shared in &own_shared {
        shared.stop_waiting();
    }
    for shared in &own_shared {
        loop {
            let time_left = shared.exit_wait().saturating_sub(started.elapsed());
            if time_left.is_zero() || shared.pending.block_until_zero(time_left.min(CHECK_INTERVAL)) {
                break;
            }
        }
    }
}

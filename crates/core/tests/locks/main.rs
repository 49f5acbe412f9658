//! The public API on the memory engine. The engine and the keeper use the same clock; time is paused, real and short,
//! or not needed.
#![expect(clippy::disallowed_methods, reason = "tests spawn threads and read clocks")]
#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "memory")]

mod altered;
mod at_exit;
mod basics;
mod busy;
mod cancel;
mod cleanup;
#[cfg(all(feature = "file", target_os = "linux"))]
mod conformance;
mod conversions;
mod conversions_unsettled;
mod doubt;
mod elections;
mod events;
mod executors;
mod extend;
mod faults;
mod first_contact;
mod fork;
mod groups;
mod handles;
mod handover;
mod inspect_macro;
mod keeper;
mod latches;
mod late;
mod loss;
mod memo_races;
mod memos;
mod min_hold;
mod modes;
mod notices;
mod notifications;
mod observe;
mod on_caller;
mod on_lost;
mod once;
mod outage;
mod pace;
mod panics;
mod recorded;
mod reenter;
mod restored;
mod run;
mod schedules;
mod sets;
mod tasks;
mod waiting;

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Env, Guard, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::stopwatch::Stopwatch;

/// How long an action without a time limit may take before a test fails: far longer than it should, because the machine
/// may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long an ended hold or waiter may stay on an engine that can be reached (I11).
pub(crate) const CLEAN_UP: Duration = Duration::from_secs(1);

/// A new store, and its clients; each client acts as a process of its own.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
}

impl World {
    pub(crate) fn new() -> Self {
        let env = Env::system();
        Self { store: MemoryStore::new(env.lineage(), env.clock) }
    }

    pub(crate) fn client(&self) -> Locks {
        Locks::builder(Arc::new(MemoryEngine::new(Arc::clone(&self.store)))).build()
    }

    /// Nothing is held and no claim waits, within the time that cleanup may take (I11).
    pub(crate) fn assert_no_leftovers(&self) {
        let client = self.client();
        let watch = Stopwatch::start();
        loop {
            let views = pollster::block_on(client.list("")).unwrap();
            if views.is_empty() {
                return;
            }
            watch.assert_within(CLEAN_UP, &format!("left behind: {views:?}"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Polls `condition` until it holds, for at most [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls `look` until it has a value, for at most [`PATIENCE`].
pub(crate) fn eventually_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = look();
        found.is_some()
    });
    found.expect("it was found")
}

/// Waits, without help of other threads, until the deadline of the hold is later than at the call.
pub(crate) fn wait_until_renewed(guard: &Guard) {
    // The clock is read first: a pause between the two readings makes the result earlier, and never later.
    let deadline = || std::time::Instant::now() + guard.remaining().expect("it is a lease");
    let first = deadline();
    eventually("renewed", || deadline() > first + Duration::from_millis(100));
}

/// The number of waiters for `name` on the engine.
pub(crate) fn waiter_count(locks: &Locks, name: &str) -> usize {
    pollster::block_on(locks.show(name)).unwrap().waiters.len()
}

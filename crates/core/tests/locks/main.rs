//! The public API on the memory engine. The engine's clock and the keeper's are one; time is paused, real
//! and short, or not needed.
#![expect(clippy::disallowed_methods, reason = "tests spawn threads and read clocks")]
#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "memory")]

mod basics;
mod cancel;
#[cfg(all(feature = "file", target_os = "linux"))]
mod conformance;
mod doubt;
mod executors;
mod faults;
mod first_contact;
mod fork;
mod goodbye;
mod groups;
mod handover;
mod here;
mod inspects;
mod keep;
mod keeper;
mod late;
mod left_over;
mod loss;
mod modes;
mod notifications;
mod observe;
mod on_lost;
mod panics;
mod recorded;
mod restored;
mod tasks;
mod waiting;

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Env, Guard, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::stopwatch::Stopwatch;

/// How long something that has no limit may take before a test fails: far longer than it should, for the machine may be
/// busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long what ended may stay on an engine that can be reached (I11).
pub(crate) const CLEAN_UP: Duration = Duration::from_secs(1);

/// A fresh store, and as many clients of it as a test asks for: each is what another process would be.
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

    /// Nothing is held and nobody waits, within the time that clean-up may take (I11).
    pub(crate) fn assert_at_rest(&self) {
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

/// Polls `condition` until it holds, with patience.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits, on this thread alone, until the hold has a later deadline than it has now.
pub(crate) fn until_renewed(guard: &Guard) {
    // The clock is read first: a pause between the two makes the deadline earlier, and never later.
    let deadline = || std::time::Instant::now() + guard.remaining().expect("it is a lease");
    let first = deadline();
    eventually("renewed", || deadline() > first + Duration::from_millis(100));
}

/// How many requests wait on the engine for `name`.
pub(crate) fn waiters(locks: &Locks, name: &str) -> usize {
    pollster::block_on(locks.show(name)).unwrap().waiters.len()
}

//! The public API on the memory engine. The engine's clock and the keeper's are one; time is real and short, or not needed.
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
mod fork;

mod handover;
mod keep;
mod keeper;
mod late;
mod left_over;
mod loss;
mod modes;
mod news;
mod observe;
mod recorded;
mod restored;
mod waiting;

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Env, Locks,
    memory::{MemoryEngine, MemoryStore},
};

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
        let until = std::time::Instant::now() + Duration::from_secs(1);
        loop {
            let views = pollster::block_on(client.list("")).unwrap();
            if views.is_empty() {
                return;
            }
            assert!(std::time::Instant::now() < until, "left behind: {views:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Polls `condition` until it holds; panics after five seconds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(std::time::Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many requests wait on the engine for `name`.
pub(crate) fn waiters(locks: &Locks, name: &str) -> usize {
    pollster::block_on(locks.show(name)).unwrap().waiters.len()
}

//! The memory engine with a manual clock, for tests.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    BoxFuture, Claim, ClaimId, Clock, Engine, Grant, Hold, Instant, Lineage, Previous, Release,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::{
    claims,
    suite::{Disturbance, Harness},
};

/// A clock that moves only when a test moves it.
pub(crate) struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A store, its clock, and the wrapper of each client.
pub(crate) struct Rig {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<MemoryStore>,
    wrap: fn(Arc<dyn Engine>) -> Arc<dyn Engine>,
}

impl Rig {
    /// Plain memory engines.
    pub(crate) fn new() -> Self {
        Self::wrapped(|engine| engine)
    }

    /// Memory engines in a wrapper.
    pub(crate) fn wrapped(wrap: fn(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Self {
        let clock = Arc::new(ManualClock(AtomicU64::new(1_000_000_000)));
        let store = MemoryStore::new(Lineage::new(7), Arc::<ManualClock>::clone(&clock));
        Self { clock, store, wrap }
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        (self.wrap)(Arc::new(MemoryEngine::new(Arc::clone(&self.store))))
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(ready(self.engine()))
    }

    fn advance(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.pass(time);
        Box::pin(ready(()))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        let can = kind == Disturbance::Forget;
        if can {
            self.store.forget_all();
        }
        Box::pin(ready(can))
    }

    fn parallel_cases(&self) -> usize {
        1
    }

    fn patience(&self) -> Duration {
        // The memory engine has its notifications before a test can ask for them.
        Duration::from_millis(200)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        // Longer than tombstones are kept, and far shorter than the lease of a leaked hold.
        self.pass(Duration::from_secs(2));
        Box::pin(ready(self.store.leftovers()))
    }
}

/// An exclusive claim of `name` whose id consists of `id`.
pub(crate) fn claim(id: u8, name: &str) -> Claim {
    Claim { id: ClaimId([id; 16]), ..claims::exclusive(name, Duration::from_secs(30)) }
}

pub(crate) fn release(claim: &Claim) -> Release {
    Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: None,
        ended: Previous::Clean,
        min_hold: None,
    }
}

pub(crate) fn hold(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}

/// The output of a future that must be ready at its first poll.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    leasehold_testkit::dropper::poll_once(future).expect("ready at its first poll")
}

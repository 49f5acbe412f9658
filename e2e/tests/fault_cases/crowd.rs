//! Clients that contend for one name and check that only one holds it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{JoinHandle, sleep, spawn},
    time::Duration,
};

use leasehold::{Guard, Locks};
use leasehold_e2e::rng::Rng;
use leasehold_testkit::stopwatch::Stopwatch;

use crate::rig::{SLACK, millis, rng, until};

/// The number of clients: more than servers, so that each server has one.
const CLIENTS: usize = 5;

/// The time limit of one acquire.
const LIMIT: Duration = Duration::from_millis(1500);

/// Clients of one name.
pub(crate) struct Crowd {
    ends: Arc<AtomicBool>,
    monitor: Arc<Monitor>,
    threads: Vec<JoinHandle<()>>,
}

/// The current holders, and the violations that clients have found.
#[derive(Default)]
struct Monitor {
    inner: Mutex<Inner>,
    grants: AtomicU64,
    violations: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Inner {
    guards: Vec<Arc<Guard>>,
    newest: u64,
}

impl Crowd {
    pub(crate) fn of(url: &str, ttl: Duration) -> Self {
        let (ends, monitor): (Arc<AtomicBool>, Arc<Monitor>) = Default::default();
        let start = |_| {
            let locks = Locks::connect(url).unwrap();
            let (ends, monitor, mut rng) = (Arc::clone(&ends), Arc::clone(&monitor), rng());
            spawn(move || {
                while !ends.load(SeqCst) {
                    monitor.acquire_once(&locks, ttl, &mut rng);
                }
            })
        };
        let threads = (0..CLIENTS).map(start).collect();
        Self { ends, monitor, threads }
    }

    /// Waits for `count` more grants.
    pub(crate) fn wait_for_grants(&self, count: u64) {
        let wanted = self.monitor.grants.load(SeqCst) + count;
        until("the clients get more grants", || self.monitor.grants.load(SeqCst) >= wanted);
    }

    /// Ends the clients, and asserts that there was no violation.
    pub(crate) fn expect_exclusion(self) {
        self.ends.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let violations = self.monitor.violations.lock().unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

impl Monitor {
    /// Acquires, checks the other holders, works a little and releases.
    fn acquire_once(&self, locks: &Locks, ttl: Duration, rng: &mut Rng) {
        let watch = Stopwatch::start();
        let granted = locks.mutex("crowd").ttl(ttl).blocking().acquire_within(LIMIT);
        let waited = watch.given();
        if waited > LIMIT + millis(100) + SLACK {
            self.record_violation(format!(
                "I12: {waited:?} for a wait of at most {LIMIT:?}: {:?}",
                granted.err()
            ));
            return;
        }
        let Ok(guard) = granted else { return sleep(millis(20)) };
        let guard = Arc::new(guard);
        self.enter(&guard);
        self.grants.fetch_add(1, SeqCst);
        let work_time = if rng.percent(10) { 300..1200 } else { 0..20 };
        sleep(rng.millis(work_time));
        self.inner.lock().unwrap().guards.retain(|other| !Arc::ptr_eq(other, &guard));
        let guard = Arc::into_inner(guard).expect("other clients use it only while it is in the list");
        let _ = guard.release_blocking();
    }

    fn enter(&self, guard: &Arc<Guard>) {
        let mut inner = self.inner.lock().unwrap();
        for other in &inner.guards {
            // If this hold is valid after the other one was, both were valid at once: a lost hold stays lost.
            if other.check() && guard.check() {
                self.record_violation(format!("I1: {} and {} hold together", other.token(), guard.token()));
            }
        }
        let token = guard.token().number;
        if token <= inner.newest && guard.check() {
            self.record_violation(format!("I4: {token} after {}", inner.newest));
        }
        inner.newest = inner.newest.max(token);
        inner.guards.push(Arc::clone(guard));
    }

    fn record_violation(&self, violation: String) {
        self.violations.lock().unwrap().push(violation);
    }
}

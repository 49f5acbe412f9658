//! An engine that panics, for example on malformed foreign data: no caller waits for a dead task, and nothing is left
//! behind.

use std::sync::{Arc, Mutex};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Engine, EngineError, ErrorKind, Guarantee, Hold, How,
    Inspect, Locks, Name, Notification, Profile, Release, Released, Renewed, View, memory::MemoryEngine,
};
use leasehold_testkit::decorators::{Faulty, Slow, Verb};

use crate::{PATIENCE, World, eventually, wait_until_renewed, waiter_count};

const TTL: std::time::Duration = std::time::Duration::from_secs(2);

/// Whether the call panics before the inner engine is called, or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// An engine that panics in the next call of one verb.
struct PanickingEngine {
    inner: Arc<dyn Engine>,
    next: Mutex<Option<(Verb, When)>>,
}

impl PanickingEngine {
    fn panic_in_next(&self, verb: Verb, when: When) {
        *self.next.lock().unwrap() = Some((verb, when));
    }

    fn is_armed(&self) -> bool {
        self.next.lock().unwrap().is_some()
    }

    async fn forward<T>(&self, verb: Verb, call: impl Future<Output = T>) -> T {
        let when = self.next.lock().unwrap().take_if(|(known, _)| *known == verb).map(|(_, when)| when);
        assert_ne!(when, Some(When::Before), "an unexpected row");
        let answer = call.await;
        assert_ne!(when, Some(When::After), "an unexpected row");
        answer
    }
}

impl Engine for PanickingEngine {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.forward(Verb::Claim, self.inner.claim(claim, how)))
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(self.forward(Verb::Claim, self.inner.claim_all(claims)))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.forward(Verb::Renew, self.inner.renew(holds)))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(self.forward(Verb::Release, self.inner.release(releases)))
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.forward(Verb::Notification, self.inner.notifications()))
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.inner.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.inner.conversions()
    }
}

impl Inspect for PanickingEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.inner.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.forward(Verb::Inspect, self.inner.guarantee()))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        self.inner.list(prefix)
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        self.inner.show(name)
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        self.inner.break_hold(name, token, force)
    }
}

fn client(world: &World) -> (Locks, Arc<PanickingEngine>) {
    // Behind a decorator whose calls wait, so that the keeper sends the requests in its tasks.
    client_of_panicking(Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store))))))
}

fn client_of_panicking(inner: Arc<dyn Engine>) -> (Locks, Arc<PanickingEngine>) {
    let engine = Arc::new(PanickingEngine { inner, next: Mutex::new(None) });
    (Locks::new(Arc::clone(&engine) as _), engine)
}

#[test]
fn a_panic_of_a_claim_is_reported_and_leaves_nothing() {
    for when in [When::Before, When::After] {
        for tries in [false, true] {
            let world = World::new();
            let (locks, engine) = client(&world);
            engine.panic_in_next(Verb::Claim, when);
            let request = locks.mutex("x");
            let result = if tries {
                request.blocking().try_acquire()
            } else {
                request.blocking().acquire_within(PATIENCE)
            };
            let error = result.expect_err("it panicked");
            assert_eq!(error.kind(), ErrorKind::Internal, "{when:?}, tries: {tries}: {error}");
            assert!(error.to_string().contains("an unexpected row"), "{error}");
            world.assert_no_leftovers();
            assert!(locks.mutex("x").blocking().try_acquire().is_ok(), "the next request works");
        }
    }
}

#[test]
fn a_waiter_behind_a_failed_one_continues() {
    let world = World::new();
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
    let (locks, engine) = client_of_panicking(Arc::clone(&slow) as _);
    slow.hold_requests(Verb::Claim);
    engine.panic_in_next(Verb::Claim, When::After);
    let start_acquire = || {
        let mut acquiring = Box::pin(locks.mutex("x").acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Future::poll(acquiring.as_mut(), &mut context).is_pending());
        acquiring
    };
    let first = start_acquire();
    pollster::block_on(slow.requests_held(Verb::Claim, 1));
    let second = start_acquire();
    slow.open(Verb::Claim);
    assert_eq!(pollster::block_on(first).expect_err("it panicked").kind(), ErrorKind::Internal);
    pollster::block_on(second).unwrap().release_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn a_hold_outlives_a_renewal_that_panicked() {
    let world = World::new();
    let (locks, engine) = client(&world);
    let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
    engine.panic_in_next(Verb::Renew, When::Before);
    let error = pollster::block_on(guard.confirm()).expect_err("it panicked");
    assert!(error.to_string().contains("an unexpected row"), "{error}");
    engine.panic_in_next(Verb::Renew, When::After);
    eventually("the renewal panicked", || !engine.is_armed());
    wait_until_renewed(&guard);
    assert!(guard.check());
    guard.release_blocking().unwrap();
}

#[test]
fn a_release_is_sent_again_after_a_panic() {
    for when in [When::Before, When::After] {
        let world = World::new();
        let (locks, engine) = client(&world);
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        engine.panic_in_next(Verb::Release, when);
        guard.release_blocking().unwrap();
        assert!(!engine.is_armed());
        world.assert_no_leftovers();
    }
}

#[test]
fn a_panic_of_a_confirmation_is_reported_and_loses_nothing() {
    let world = World::new();
    let (locks, engine) = client(&world);
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    engine.panic_in_next(Verb::Inspect, When::Before);
    let error = pollster::block_on(locks.guarantee()).expect_err("it panicked");
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(guard.check());
    pollster::block_on(guard.confirm()).unwrap();
}

/// When the keeper cannot continue, every holder and waiter is notified.
#[test]
fn a_panic_of_the_keeper_ends_all_holds_and_waits() {
    let world = World::new();
    let (locks, engine) = client(&world);
    let held = world.client().mutex("wanted").blocking().acquire().unwrap();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let waiting = std::thread::spawn({
        let locks = locks.clone();
        move || locks.mutex("wanted").blocking().acquire_within(PATIENCE)
    });
    eventually("it waits", || waiter_count(&world.client(), "wanted") == 1);
    engine.panic_in_next(Verb::Notification, When::Before);
    // This wakes the keeper, which then reads notifications again.
    drop(locks.mutex("other").blocking().acquire());
    assert!(waiting.join().unwrap().expect_err("its keeper is gone").is_closed());
    pollster::block_on(guard.lost());
    assert!(!guard.check());
    assert!(locks.mutex("y").blocking().try_acquire().expect_err("it is gone").is_closed());
    held.release_blocking().unwrap();
}

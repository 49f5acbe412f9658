//! Requests that are started on the caller's thread.

use std::sync::Arc;

use leasehold_core::{Engine, Keeper, Locks, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Slow, Verb},
    dropper::poll_once,
};

use crate::World;

/// `Locks` with their own thread, on a connection that a test may delay.
fn direct_client(world: &World) -> (Arc<Slow>, Locks) {
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))).direct());
    (Arc::clone(&slow), warmed_up(Locks::new(slow)))
}

/// Uses the locks until the next request counts as the only one pending.
fn warmed_up(locks: Locks) -> Locks {
    for _ in 0..WARM_UP_REQUESTS {
        locks.mutex("before").blocking().acquire().unwrap().release_blocking().unwrap();
    }
    locks
}

/// The number of requests one after another, after which the next request counts as the only one pending.
const WARM_UP_REQUESTS: usize = 8;

#[test]
fn a_lone_request_starts_on_the_calling_thread() {
    let world = World::new();
    let (slow, locks) = direct_client(&world);
    pollster::block_on(starts_on_caller(&slow, &locks));
    world.assert_no_leftovers();
}

#[test]
fn a_lone_request_starts_inside_the_runtime_of_the_keeper() {
    let world = World::new();
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))).direct());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let keeper = Keeper::on(runtime.handle().clone());
    let locks = Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).keeper(keeper).build();
    runtime.block_on(async {
        for _ in 0..WARM_UP_REQUESTS {
            locks.mutex("before").acquire().await.unwrap().release().await.unwrap();
        }
        starts_on_caller(&slow, &locks).await;
    });
    world.assert_no_leftovers();
}

/// Asserts that the next request, and its release, are started on this thread.
async fn starts_on_caller(slow: &Slow, locks: &Locks) {
    let started_counts =
        || (slow.started_on_calling_thread(Verb::Claim), slow.started_on_calling_thread(Verb::Release));
    let (claims, releases) = started_counts();
    slow.hold_requests(Verb::Claim);
    let mut acquire = Box::pin(locks.mutex("x").acquire());
    assert!(poll_once(acquire.as_mut()).is_none());
    assert_eq!((started_counts(), slow.waiting(Verb::Claim)), ((claims + 1, releases), 1));
    slow.open(Verb::Claim);
    let guard = acquire.await.unwrap();
    slow.hold_replies(Verb::Release);
    let release = guard.release();
    assert_eq!((started_counts(), slow.waiting(Verb::Release)), ((claims + 1, releases + 1), 1));
    slow.open(Verb::Release);
    release.await.unwrap();
}

#[test]
fn concurrent_requests_are_left_to_the_keeper() {
    let world = World::new();
    let (slow, locks) = direct_client(&world);
    let before = slow.started_on_calling_thread(Verb::Claim);
    slow.hold_requests(Verb::Claim);
    let mut crowd: Vec<_> =
        (0..16).map(|number| Box::pin(locks.mutex(number.to_string()).acquire())).collect();
    for acquire in &mut crowd {
        assert!(poll_once(acquire.as_mut()).is_none());
    }
    assert!(
        slow.started_on_calling_thread(Verb::Claim) <= before + 2,
        "the second while the first may be done"
    );
    slow.open(Verb::Claim);
    let guards: Vec<_> = crowd.into_iter().map(|acquire| pollster::block_on(acquire).unwrap()).collect();
    // All releases are pending at the same time, however fast the keeper is.
    slow.hold_requests(Verb::Release);
    drop(guards);
    slow.open(Verb::Release);
    world.assert_no_leftovers();
    let before = slow.started_on_calling_thread(Verb::Claim);
    locks.mutex("x").blocking().acquire().unwrap().release_blocking().unwrap();
    assert_eq!(slow.started_on_calling_thread(Verb::Claim), before, "the next one may be one of many");
    world.assert_no_leftovers();
}

#[test]
fn a_dropped_request_started_on_the_caller_leaves_nothing() {
    let world = World::new();
    for hold in [Slow::hold_requests, Slow::hold_replies] {
        let (slow, locks) = direct_client(&world);
        hold(&slow, Verb::Claim);
        let mut acquire = Box::pin(locks.mutex("x").acquire());
        assert!(poll_once(acquire.as_mut()).is_none());
        drop(acquire);
        slow.open(Verb::Claim);
        world.assert_no_leftovers();
    }
}

#[test]
fn the_end_of_the_keeper_ends_requests_started_on_the_caller() {
    let world = World::new();
    let (slow, locks) = direct_client(&world);
    slow.hold_requests(Verb::Claim);
    let mut acquire = Box::pin(locks.mutex("x").acquire());
    assert!(poll_once(acquire.as_mut()).is_none());
    let mut closed = Box::pin(locks.close(crate::PATIENCE));
    let lost = poll_once(closed.as_mut());
    assert!(pollster::block_on(acquire).unwrap_err().is_closed());
    assert_eq!(lost.unwrap_or_else(|| pollster::block_on(closed)), 0);
    world.assert_no_leftovers();
}

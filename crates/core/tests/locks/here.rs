//! Requests that are begun on the thread of who asks.

use std::sync::Arc;

use leasehold_core::{Locks, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Slow, Verb},
    dropper::poll_once,
};

use crate::World;

/// `Locks` with a thread of their own, on a wire that a test may hold up.
fn direct(world: &World) -> (Arc<Slow>, Locks) {
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))).direct());
    (Arc::clone(&slow), Locks::new(slow))
}

#[test]
fn a_lone_request_is_begun_on_the_thread_that_asks_and_seen_through_by_the_keeper() {
    let world = World::new();
    let (slow, locks) = direct(&world);
    slow.hold_requests(Verb::Claim);
    let mut acquire = Box::pin(locks.mutex("x").acquire());
    assert!(poll_once(acquire.as_mut()).is_none());
    assert_eq!((slow.begun_here(Verb::Claim), slow.waiting(Verb::Claim)), (1, 1));
    slow.open(Verb::Claim);
    let guard = pollster::block_on(acquire).unwrap();
    slow.hold_replies(Verb::Release);
    let release = guard.release();
    assert_eq!((slow.begun_here(Verb::Release), slow.waiting(Verb::Release)), (1, 1));
    slow.open(Verb::Release);
    pollster::block_on(release).unwrap();
    world.assert_at_rest();
}

#[test]
fn what_a_crowd_asks_for_is_left_to_the_keeper() {
    let world = World::new();
    let (slow, locks) = direct(&world);
    slow.hold_requests(Verb::Claim);
    let mut crowd: Vec<_> =
        (0..16).map(|number| Box::pin(locks.mutex(number.to_string()).acquire())).collect();
    for acquire in &mut crowd {
        assert!(poll_once(acquire.as_mut()).is_none());
    }
    assert_eq!(slow.begun_here(Verb::Claim), 2, "the second while the first may be done");
    slow.open(Verb::Claim);
    let guards: Vec<_> = crowd.into_iter().map(|acquire| pollster::block_on(acquire).unwrap()).collect();
    drop(guards);
    world.assert_at_rest();
}

#[test]
fn nothing_is_left_of_a_request_that_was_begun_here_and_dropped() {
    let world = World::new();
    for hold in [Slow::hold_requests, Slow::hold_replies] {
        let (slow, locks) = direct(&world);
        hold(&slow, Verb::Claim);
        let mut acquire = Box::pin(locks.mutex("x").acquire());
        assert!(poll_once(acquire.as_mut()).is_none());
        drop(acquire);
        slow.open(Verb::Claim);
        world.assert_at_rest();
    }
}

#[test]
fn a_keeper_that_is_gone_ends_what_was_begun_here() {
    let world = World::new();
    let (slow, locks) = direct(&world);
    slow.hold_requests(Verb::Claim);
    let mut acquire = Box::pin(locks.mutex("x").acquire());
    assert!(poll_once(acquire.as_mut()).is_none());
    let mut closed = Box::pin(locks.close(crate::PATIENCE));
    let _ = poll_once(closed.as_mut());
    assert!(pollster::block_on(acquire).unwrap_err().is_closed());
    assert_eq!(pollster::block_on(closed), 0);
    world.assert_at_rest();
}

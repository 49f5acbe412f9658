//! Lost requests, lost answers and late requests: nothing of any name is left.

use std::{cell::RefCell, sync::Arc};

use leasehold_core::{Locks, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Fault, Faulty, Slow, Verb},
    dropper::{drop_at_every_poll, poll_once},
};

use super::{OneByOne, names_in_use};
use crate::{PATIENCE, World, eventually};

/// A client behind a faulty network.
fn client(world: &World, one_by_one: bool) -> (Locks, Arc<Faulty>) {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
    let locks = if one_by_one {
        Locks::new(OneByOne::new(Arc::clone(&faulty) as _))
    } else {
        Locks::new(Arc::clone(&faulty) as _)
    };
    (locks, faulty)
}

/// F74: an unknown outcome on the last name releases the first names too.
#[test]
fn an_unknown_outcome_cleans_every_name() {
    for one_by_one in [false, true] {
        for fault in [Fault::RequestLost, Fault::ReplyLost, Fault::Late] {
            // The answer that is lost: the only one, or that of each name in turn.
            for unknown_at in 0..if one_by_one { 3 } else { 1 } {
                let world = World::new();
                let (locks, faulty) = client(&world, one_by_one);
                // A duplicated request is no fault for its caller.
                (0..unknown_at).for_each(|_| faulty.next(Verb::Claim, Fault::Duplicated));
                faulty.next(Verb::Claim, fault);
                let error =
                    locks.all().mutex("a").mutex("b").mutex("c").blocking().try_acquire().unwrap_err();
                assert!(error.is_unknown(), "{error}");
                eventually("all faults happened", || faulty.pending() == 0);
                pollster::block_on(faulty.deliver_late());
                world.assert_no_leftovers();
            }
        }
    }
}

#[test]
fn a_wait_copes_with_lost_answers() {
    for one_by_one in [false, true] {
        for lost in 0..4 {
            let world = World::new();
            let (locks, faulty) = client(&world, one_by_one);
            (0..lost).for_each(|_| faulty.next(Verb::Claim, Fault::ReplyLost));
            faulty.next(Verb::Claim, Fault::RequestLost);
            let guards = locks.all().mutex("a").mutex("b").mutex("c").blocking().acquire().unwrap();
            assert!(guards.check());
            assert_eq!(names_in_use(&world.client()), ["a", "b", "c"]);
            guards.release_blocking().unwrap();
            world.assert_no_leftovers();
        }
    }
}

#[test]
fn every_poll_can_be_the_last() {
    for one_by_one in [false, true] {
        for taken in [None, Some("a"), Some("b"), Some("c")] {
            let world = World::new();
            let (locks, _) = client(&world, one_by_one);
            let other = world.client();
            let holder = RefCell::new(None);
            let all = locks.all().mutex("a").mutex("b").mutex("c");
            for limit in [None, Some(PATIENCE)] {
                drop_at_every_poll(
                    || {
                        *holder.borrow_mut() =
                            taken.map(|name| other.mutex(name).blocking().acquire().unwrap());
                        limit.map_or_else(|| all.acquire(), |limit| all.acquire_within(limit))
                    },
                    || drop(holder.borrow_mut().take()),
                    |_| {
                        drop(holder.borrow_mut().take());
                        world.assert_no_leftovers();
                    },
                );
            }
        }
    }
}

/// Dropped while the request of the one step, or its answer, is on its way.
#[test]
fn a_request_in_flight_is_undone() {
    for hold in [Slow::hold_requests, Slow::hold_replies] {
        let world = World::new();
        let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
        let locks = Locks::new(Arc::clone(&slow) as _);
        hold(&slow, Verb::Claim);
        let mut acquire = Box::pin(locks.all().mutex("a").mutex("b").acquire());
        assert!(poll_once(acquire.as_mut()).is_none());
        eventually("it is in flight", || slow.waiting(Verb::Claim) == 1);
        drop(acquire);
        slow.open(Verb::Claim);
        world.assert_no_leftovers();
    }
}

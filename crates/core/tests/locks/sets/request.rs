//! What a request for several names takes, by how many requests to the engine, and which requests are refused.

use std::sync::Arc;

use leasehold_core::{Locks, MAX_NAMES_AT_ONCE, Mode, Owner, memory::MemoryEngine};
use leasehold_testkit::decorators::{Counting, Verb};

use super::{OneByOne, names_in_use};
use crate::World;

/// A client that counts its calls.
fn counted(world: &World, one_by_one: bool) -> (Locks, Arc<Counting>) {
    let counting = Arc::new(Counting::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
    let locks = if one_by_one {
        Locks::new(OneByOne::new(Arc::clone(&counting) as _))
    } else {
        Locks::new(Arc::clone(&counting) as _)
    };
    (locks, counting)
}

#[test]
fn a_name_is_taken_once_in_the_stronger_mode() {
    let world = World::new();
    let locks = world.client();
    let all = locks.all().mutex("b").read("a").read("b").permits("c", 1, 4).permits("c", 3, 4).read("a");
    let guards = all.blocking().acquire().unwrap();
    let held: Vec<_> = guards.iter().map(|guard| (guard.name().as_str(), guard.mode())).collect();
    let permits = Mode::Permits { count: 3, limit: 4 };
    assert_eq!(held, [("a", Mode::Shared), ("b", Mode::Exclusive), ("c", permits)]);
    let other = world.client();
    other.rw("a").read().blocking().try_acquire().unwrap().release_blocking().unwrap();
    other.semaphore("c", 4).blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert!(other.rw("b").read().blocking().try_acquire().unwrap_err().is_taken());
    guards.release_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn one_step_takes_all_names_where_the_engine_can() {
    for (one_by_one, calls) in [(false, 1), (true, 3)] {
        let world = World::new();
        let (locks, counting) = counted(&world, one_by_one);
        let all = locks.all().mutex("c").mutex("a").mutex("b");
        let guards = all.blocking().acquire().unwrap();
        assert_eq!((counting.count(Verb::Claim).calls, counting.count(Verb::Claim).items), (calls, 3));
        guards.release_blocking().unwrap();
        counting.reset();
        let other = world.client();
        let taken = other.mutex("b").blocking().acquire().unwrap();
        let error = all.blocking().try_acquire().unwrap_err();
        assert!(error.is_taken() && error.to_string().contains("\"b\""), "{error}");
        assert_eq!(counting.count(Verb::Claim).calls, if one_by_one { 2 } else { 1 });
        other.all().mutex("a").mutex("c").blocking().try_acquire().unwrap().release_blocking().unwrap();
        drop(taken);
        world.assert_no_leftovers();
    }
}

#[test]
fn a_try_of_names_that_this_process_holds_claims_nothing() {
    for one_by_one in [false, true] {
        let world = World::new();
        let (locks, counting) = counted(&world, one_by_one);
        let owner = Owner::new("owner");
        let held = locks.mutex("b").owner(owner.clone()).blocking().acquire().unwrap();
        counting.reset();
        let all = || locks.all().mutex("a").mutex("b").mutex("c");
        let error = all().blocking().try_acquire().unwrap_err();
        assert!(error.is_taken() && error.to_string().contains("\"b\""), "{error}");
        assert_eq!(counting.count(Verb::Claim).calls, 0);
        // Its own owner locks it again.
        all().owner(owner.clone()).blocking().try_acquire().unwrap().release_blocking().unwrap();
        held.release_blocking().unwrap();
        let _permit = locks.semaphore("b", 2).blocking().acquire().unwrap();
        let error = all().blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured(), "one name has one kind of lock: {error}");
    }
}

/// An engine that cannot take this set, for example because of a limit of its server, may say so when it is asked.
#[test]
fn a_set_that_the_engine_declines_is_taken_in_order() {
    let world = World::new();
    let counting = Arc::new(Counting::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
    let locks = Locks::new(OneByOne::by_answer(Arc::clone(&counting) as _));
    let all = locks.all().mutex("c").mutex("a").mutex("b");
    all.blocking().acquire().unwrap().release_blocking().unwrap();
    all.blocking().try_acquire().unwrap().release_blocking().unwrap();
    let (claims, releases) = (counting.count(Verb::Claim), counting.count(Verb::Release));
    assert_eq!(
        (claims.calls, claims.items, releases.items),
        (6, 6, 6),
        "nothing is released for a set that was declined"
    );
    world.assert_no_leftovers();
}

#[test]
fn one_name_is_one_request_of_its_own() {
    let world = World::new();
    let (locks, counting) = counted(&world, false);
    let guards = locks.all().mutex("a").mutex("a").blocking().acquire().unwrap();
    assert_eq!(guards.iter().len(), 1);
    assert_eq!(counting.count(Verb::Claim).largest, 1);
    guards.release_blocking().unwrap();
    world.assert_no_leftovers();
}

/// A name that this process holds is not free for the one step; a shared hold is joined without the engine.
#[test]
fn a_reader_of_this_process_is_joined() {
    let world = World::new();
    let (locks, counting) = counted(&world, false);
    let reader = locks.rw("b").read().blocking().acquire().unwrap();
    counting.reset();
    let guards = locks.all().mutex("a").read("b").blocking().try_acquire().unwrap();
    assert_eq!(guards.get("b").unwrap().id(), reader.id());
    assert_eq!(counting.count(Verb::Claim).items, 1, "only for the other name");
    drop((guards, reader));
    world.assert_no_leftovers();
}

#[test]
fn wrong_requests_are_refused_before_anything_is_sent() {
    let world = World::new();
    let (locks, counting) = counted(&world, false);
    let long_list = (0..=MAX_NAMES_AT_ONCE).fold(locks.all(), |all, number| all.mutex(format!("n{number}")));
    for (all, message) in [
        (locks.all(), "no name is given"),
        (locks.all().mutex("a").mutex(""), "the name is empty"),
        (locks.all().permits("a", 1, 2).permits("a", 1, 3), "given twice with different kinds or limits"),
        (locks.all().permits("a", 1, 2).mutex("b").mutex("a"), "given twice with different kinds or limits"),
        (locks.all().mutex("a").permits("b", 3, 2), "3 of 2 permits"),
        (locks.all().mutex("a").mutex("b").ttl(std::time::Duration::ZERO), "is out of range"),
        (locks.all().mutex("a").mutex("b").attempts(0), "attempts is zero"),
        (long_list, "129 names are given: at most 128"),
    ] {
        let error = all.blocking().acquire().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(message), "{error}");
    }
    assert_eq!(counting.count(Verb::Claim).calls, 0);
}

#[test]
fn the_largest_set_is_taken() {
    let world = World::new();
    let locks = world.client();
    let all = (0..MAX_NAMES_AT_ONCE).fold(locks.all(), |all, number| all.mutex(format!("n{number}")));
    let guards = all.blocking().try_acquire().unwrap();
    assert_eq!((guards.iter().len(), names_in_use(&locks).len()), (MAX_NAMES_AT_ONCE, MAX_NAMES_AT_ONCE));
    drop(guards);
    world.assert_no_leftovers();
}

#[test]
fn an_error_that_no_try_can_mend_ends_the_tries() {
    for one_by_one in [false, true] {
        let world = World::new();
        let _permits = world.client().semaphore("b", 3).blocking().acquire().unwrap();
        let (locks, counting) = counted(&world, one_by_one);
        let error = locks.all().mutex("a").mutex("b").attempts(4).blocking().acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.name().unwrap().as_str() == "b", "{error}");
        assert_eq!(counting.count(Verb::Claim).items, 2, "one try of two names");
    }
}

#[test]
fn tries_are_counted_for_the_whole_set() {
    for one_by_one in [false, true] {
        let world = World::new();
        let (locks, counting) = counted(&world, one_by_one);
        let taken = world.client().mutex("b").blocking().acquire().unwrap();
        let all = locks.all().mutex("a").mutex("b").attempts(3);
        let error = all.blocking().acquire().unwrap_err();
        assert!(error.is_taken() && error.name().unwrap().as_str() == "b", "{error}");
        assert_eq!(counting.count(Verb::Claim).items, 6, "three tries of two names");
        let request = all.attempts(10_000);
        let trying = std::thread::spawn(move || request.blocking().acquire_within(crate::PATIENCE));
        drop(taken);
        drop(trying.join().unwrap().unwrap());
        world.assert_no_leftovers();
    }
}

#[test]
fn a_clash_on_one_name_is_reported_for_it() {
    let world = World::new();
    let _permits = world.client().semaphore("b", 3).blocking().acquire().unwrap();
    let locks = world.client();
    for request in [locks.all().mutex("a").mutex("b"), locks.all().mutex("a").permits("b", 1, 4)] {
        // Longer than the test waits: a hold that is left does not lapse meanwhile.
        let request = request.ttl(crate::PATIENCE * 2);
        for error in
            [request.blocking().acquire().unwrap_err(), request.blocking().try_acquire().unwrap_err()]
        {
            assert!(error.is_misconfigured() && error.to_string().contains("\"b\""), "{error}");
        }
    }
    crate::eventually("only the permits are held", || names_in_use(&locks) == ["b"]);
}

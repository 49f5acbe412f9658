//! Waiting under a hold of the same owner.

use leasehold_core::Owner;

use super::names_in_use;
use crate::World;

#[test]
fn a_wait_for_an_earlier_name_is_refused_if_the_owner_shows_it() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let held = locks.mutex("m").owner(owner.clone()).blocking().acquire().unwrap();
    for request in [locks.all().mutex("a").mutex("z"), locks.all().mutex("a")] {
        let error = request.owner(owner.clone()).blocking().acquire().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("\"m\""), "{error}");
        assert_eq!(names_in_use(&locks), ["m"]);
    }
    // A request that is not for a set is not checked.
    drop(locks.mutex("a").owner(owner.clone()).blocking().acquire().unwrap());
    // A try never waits; another owner, or none, is another user of the locks.
    drop(locks.all().mutex("a").mutex("z").owner(owner.clone()).blocking().try_acquire().unwrap());
    drop(locks.all().mutex("a").mutex("b").owner(Owner::new("me")).blocking().acquire().unwrap());
    drop(locks.all().mutex("a").mutex("b").blocking().acquire().unwrap());
    drop(held);
    drop(locks.all().mutex("a").mutex("z").owner(owner).blocking().acquire().unwrap());
    world.assert_no_leftovers();
}

#[test]
fn a_wait_for_later_names_is_allowed_and_a_held_name_is_entered_again() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let held = locks.mutex("m").owner(owner.clone()).blocking().acquire().unwrap();
    let all = locks.all().owner(owner.clone());
    let guards = all.mutex("n").mutex("m").blocking().acquire().unwrap();
    assert_eq!(guards.token("m"), Some(held.token()));
    drop(held);
    assert_eq!(names_in_use(&locks), ["m", "n"], "the set still has the name");
    drop(guards);
    world.assert_no_leftovers();
}

/// An owner takes permits anew, so it can wait for itself.
#[test]
fn a_wait_for_more_permits_of_a_held_name_is_refused() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let _held = locks.semaphore("m", 2).permits(2).owner(owner.clone()).blocking().acquire().unwrap();
    let error = locks
        .all()
        .permits("m", 1, 2)
        .mutex("n")
        .owner(owner)
        .blocking()
        .acquire_within(crate::PATIENCE)
        .unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

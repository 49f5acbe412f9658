//! Re-entrancy by an explicit owner: the guards of an owner are counted, and share one hold.

use leasehold_core::{Guard, Locks, Owner, Request};
use leasehold_testkit::dropper::poll_once;

use crate::{World, waiter_count};

#[test]
fn the_last_leave_releases() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let owner = Owner::new("importer");
    let mut guards: Vec<Guard> = (0..3).map(|_| owner.enter_blocking(locks.mutex("x")).unwrap()).collect();
    assert!(guards.iter().all(|guard| guard.entries() == 3 && guard.token() == guards[0].token()));
    let stranger = Owner::new("importer");
    assert!(stranger.enter(locks.mutex("y")).into_guard().entries() == 1);
    while let Some(guard) = guards.pop() {
        assert!(other.mutex("x").blocking().try_acquire().unwrap_err().is_taken());
        guard.release_blocking().unwrap();
        assert!(guards.iter().all(|left| left.entries() == guards.len()));
    }
    drop(other.mutex("x").blocking().try_acquire().unwrap());
    assert_eq!(locks.mutex("x").blocking().acquire().unwrap().entries(), 1, "a guard without an owner");
    world.assert_no_leftovers();
}

/// Two tasks of one owner wait for the same name, and the first task awaits the second.
#[test]
fn waiting_requests_of_one_owner_get_the_hold_together() {
    let modes: [fn(&Locks) -> Request; 2] = [|locks| locks.mutex("x"), |locks| locks.rw("x").read()];
    for request in modes {
        let world = World::new();
        let (locks, other) = (world.client(), world.client());
        let held = other.mutex("x").blocking().acquire().unwrap();
        let owner = Owner::new("importer");
        let mut first = Box::pin(owner.enter(request(&locks)));
        assert!(poll_once(first.as_mut()).is_none());
        // A writer between the two keeps readers apart that have no owner in common.
        let mut between = Box::pin(locks.rw("x").write().acquire());
        assert!(poll_once(between.as_mut()).is_none());
        let mut second = Box::pin(owner.enter(request(&locks)));
        assert!(poll_once(second.as_mut()).is_none());
        crate::eventually("a claim waits", || waiter_count(&other, "x") == 1);
        held.release_blocking().unwrap();
        let (first, second) = (pollster::block_on(first).unwrap(), pollster::block_on(second).unwrap());
        assert_eq!((first.token(), second.entries()), (second.token(), 2));
        drop(first);
        assert!(poll_once(between.as_mut()).is_none(), "the second guard holds the name");
        drop(second);
        drop(pollster::block_on(between).unwrap());
        world.assert_no_leftovers();
    }
}

/// A request of an owner that waits for the owner's own shared guard would wait for ever.
#[test]
fn a_queued_writer_of_an_owner_is_refused_when_the_owner_gets_the_name_shared() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let held = other.mutex("x").blocking().acquire().unwrap();
    let owner = Owner::new("importer");
    let mut reader = Box::pin(owner.enter(locks.rw("x").read()));
    assert!(poll_once(reader.as_mut()).is_none());
    let mut writer = Box::pin(owner.enter(locks.rw("x").write()));
    assert!(poll_once(writer.as_mut()).is_none());
    crate::eventually("a claim waits", || waiter_count(&other, "x") == 1);
    held.release_blocking().unwrap();
    let reader = pollster::block_on(reader).unwrap();
    let error = pollster::block_on(writer).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("holds it shared"), "{error}");
    drop(reader);
    world.assert_no_leftovers();
}

/// A hold that is handed over within the process, or that a try took, brings the other requests of its owner along.
#[test]
fn a_hand_over_and_a_try_bring_the_owner_along() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let owner = Owner::new("importer");
    let waiting = |request: Request| {
        let mut waiting = Box::pin(owner.enter(request));
        assert!(poll_once(waiting.as_mut()).is_none());
        waiting
    };
    // The hand-over: guard and waiters have the same terms.
    let holder = Owner::new("importer").enter_blocking(locks.mutex("x")).unwrap();
    let [one, two] = [waiting(locks.mutex("x")), waiting(locks.mutex("x"))];
    holder.release_blocking().unwrap();
    let (one, two) = (pollster::block_on(one).unwrap(), pollster::block_on(two).unwrap());
    assert_eq!((one.token(), one.entries()), (two.token(), 2));
    drop((one, two));
    world.assert_no_leftovers();

    let held = other.rw("x").read().blocking().acquire().unwrap();
    let waits = waiting(locks.mutex("x"));
    drop(held);
    let guard = pollster::block_on(waits).unwrap();
    let again = locks.mutex("x").owner(owner.clone()).blocking().try_acquire().unwrap();
    assert_eq!(again.entries(), 2);
    drop((guard, again));
    world.assert_no_leftovers();
}

/// The guard of a request that is granted at once.
trait IntoGuard {
    fn into_guard(self) -> Guard;
}

impl IntoGuard for leasehold_core::Acquire {
    fn into_guard(self) -> Guard {
        pollster::block_on(self).unwrap()
    }
}

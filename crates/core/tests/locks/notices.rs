//! Notices of changes for views.

use std::sync::Arc;

use leasehold_core::{Locks, Watched, memory::MemoryEngine};

use crate::{World, eventually};

fn all() -> Watched {
    Watched::Prefix(String::new())
}

#[test]
fn a_view_is_told_of_a_change() {
    let world = World::new();
    let (viewer, locks) = (world.client(), world.client());
    let mut notices = viewer.notices(all());
    pollster::block_on(notices.changed());
    assert!(notices.are_pushed());
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    pollster::block_on(notices.changed());
    guard.release_blocking().unwrap();
    pollster::block_on(notices.changed());
}

/// Neither the end of a view nor that of its `Locks` leaves anything behind.
#[test]
fn a_view_and_its_locks_end_independently() {
    let world = World::new();
    let shared = Arc::new(MemoryEngine::new(Arc::clone(&world.store)));
    let engine = Arc::downgrade(&shared);
    let locks = Locks::new(shared);
    pollster::block_on(locks.show("x")).unwrap();
    let shares = engine.strong_count();
    let begun = || {
        let mut notices = locks.notices(all());
        pollster::block_on(notices.changed());
        notices
    };
    drop(begun());
    eventually("the view is gone", || engine.strong_count() == shares);
    let mut notices = begun();
    drop(locks);
    eventually("the locks are gone", || engine.strong_count() == 0);
    pollster::block_on(async {
        let context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(notices.poll_changed(&context).is_pending(), "there is nothing to tell");
    });
}

#[test]
fn a_closed_locks_tells_nothing() {
    let locks = World::new().client();
    locks.close_blocking(crate::CLEAN_UP);
    let mut notices = locks.notices(all());
    let context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(notices.poll_changed(&context).is_pending() && !notices.are_pushed());
}

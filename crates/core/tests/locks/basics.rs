//! Tests of the basic promises of the public API: exclusion, tokens, argument checks, panics, owners, closing.

use std::{
    future::Future,
    sync::{Arc, mpsc},
    time::Duration,
};

use leasehold_core::{Broken, ErrorKind, Guard, Level, Locks, Owner, Previous};

use crate::{World, altered::Altered, eventually, waiter_count};

const fn assert_send_sync<T: Send + Sync>() {}
const fn assert_static<T: 'static>() {}

#[test]
fn the_public_types_are_send_and_sync() {
    assert_send_sync::<Locks>();
    assert_send_sync::<Guard>();
    assert_static::<Guard>();
}

#[test]
fn a_guard_excludes_until_it_is_released() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let begin = std::time::Instant::now();
    let guard = a.mutex("x").blocking().try_acquire().unwrap();
    assert!(guard.check() && guard.remaining().unwrap() + begin.elapsed() > Duration::from_secs(25));
    for locks in [&a, &b] {
        let error = locks.mutex("x").blocking().try_acquire().unwrap_err();
        assert!(error.is_taken() && error.kind() == ErrorKind::Taken, "{error:?}");
        assert!(error.to_string().contains("memory lock \"x\""), "{error}");
    }
    assert!(b.mutex("y").blocking().try_acquire().is_ok());
    guard.release_blocking().unwrap();
    let again = b.mutex("x").blocking().try_acquire().unwrap();
    assert_eq!(again.previous(), Previous::Clean);
    drop(again);
    world.assert_no_leftovers();
}

#[test]
fn a_try_is_not_refused_by_a_hold_that_the_engine_has_ended() {
    let world = World::new();
    let engine = Arc::new(Altered::new(&world.store, |_| {}));
    let locks = Locks::builder(Arc::clone(&engine) as _).build();
    let guard = locks.mutex("x").blocking().try_acquire().unwrap();
    let (tell, told) = mpsc::channel();
    let (here, elsewhere) = (locks.clone(), world.client());
    engine.after_next_release(move || {
        elsewhere.mutex("x").blocking().try_acquire().unwrap().release_blocking().unwrap();
        tell.send(here.mutex("x").blocking().try_acquire()).unwrap();
    });
    guard.release_blocking().unwrap();
    told.recv().unwrap().expect("nobody holds it").release_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn tokens_grow_across_clients() {
    let world = World::new();
    let clients = [world.client(), world.client()];
    let mut last = 0;
    for round in 0..200 {
        let guard = clients[round % 2].mutex("x").blocking().acquire().unwrap();
        assert!(guard.token().number > last, "{} after {last}", guard.token());
        last = guard.token().number;
    }
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    let world = World::new();
    let locks = world.client();
    let long = "x".repeat(4096);
    for (request, reason) in [
        (locks.mutex(""), "empty"),
        (locks.mutex(&long), "4096 bytes"),
        (locks.mutex("a\tb"), "U+0009"),
        (locks.mutex("x").ttl(Duration::ZERO), "100ms to 24h"),
        (locks.mutex("x").ttl(Duration::from_millis(1)), "100ms to 24h"),
        (locks.mutex("x").ttl(Duration::from_secs(u64::MAX)), "100ms to 24h"),
        (locks.mutex("x").max_hold(Duration::ZERO), "max_hold is zero"),
        (locks.mutex("x").attempts(0), "attempts is zero"),
        (locks.semaphore("x", 0), "1 of 0 permits"),
        (locks.semaphore("x", 3).permits(4), "4 of 3 permits"),
        (locks.semaphore("x", 3).permits(0), "0 of 3 permits"),
        (locks.mutex("x").permits(2), "from a semaphore only"),
        (locks.rw("x").read().permits(2), "from a semaphore only"),
    ] {
        let error = request.blocking().try_acquire().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
    }
    world.assert_no_leftovers();
}

#[test]
fn a_panic_releases_and_is_reported_to_the_next_holder() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let next = world.client().mutex("x").blocking().try_acquire().unwrap();
    assert_eq!(next.previous(), Previous::Abandoned);
}

#[test]
fn a_grant_of_a_dropped_request_does_not_hide_the_previous_end() {
    let world = World::new();
    let (one, other) = (world.client(), world.client());
    let guard = one.mutex("x").blocking().acquire().unwrap();
    let first = guard.token().number;
    let request = other.mutex("x");
    let mut waits = Box::pin(request.acquire());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    eventually("the other waits", || waiter_count(&one, "x") == 1);
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    eventually("the other was granted", || {
        let view = pollster::block_on(one.show("x")).unwrap();
        view.holders.iter().any(|holder| holder.token.is_some_and(|token| token > first))
    });
    drop(waits);
    let next = one.mutex("x").blocking().acquire().unwrap();
    assert_eq!(next.previous(), Previous::Abandoned);
}

#[test]
fn an_owner_can_acquire_its_hold_again() {
    let world = World::new();
    let locks = world.client();
    let me = Owner::new("worker 7");
    let outer = locks.mutex("x").owner(me.clone()).blocking().acquire().unwrap();
    let inner = locks.mutex("x").owner(me.clone()).blocking().try_acquire().unwrap();
    assert_eq!(inner.token(), outer.token(), "the same hold has the same token");
    let other_owner = locks.mutex("x").owner("worker 7").blocking().try_acquire();
    assert!(other_owner.unwrap_err().is_taken(), "the same label is not the same owner");
    drop(outer);
    assert!(
        world.client().mutex("x").blocking().try_acquire().unwrap_err().is_taken(),
        "the inner guard still holds the name"
    );
    drop(inner);
    world.assert_no_leftovers();

    let reader = locks.rw("y").read().owner(me.clone()).blocking().acquire().unwrap();
    let error = locks.rw("y").write().owner(me).blocking().acquire().unwrap_err();
    assert!(error.is_invalid(), "an upgrade would wait for itself: {error}");
    drop(reader);
}

#[test]
fn closing_ends_waits_and_waits_for_guards() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let waiting = locks.mutex("x");
    let waiter = std::thread::spawn(move || waiting.blocking().acquire());
    let other = world.client();
    crate::eventually("the waiter waits locally", || {
        pollster::block_on(async { std::future::poll_fn(|_| std::task::Poll::Ready(())).await });
        other.mutex("x").blocking().try_acquire().is_err()
    });
    let left = pollster::block_on(locks.close(Duration::from_millis(50)));
    assert_eq!(left, 1, "the guard was not dropped");
    assert!(!guard.check());
    assert!(waiter.join().unwrap().unwrap_err().is_closed());
    assert!(locks.mutex("y").blocking().acquire().unwrap_err().is_closed());
    drop(guard);
    world.assert_no_leftovers();
    let second = world.client();
    drop(second.mutex("x").blocking().acquire().unwrap());
    assert_eq!(pollster::block_on(second.close(crate::PATIENCE)), 0);
}

#[test]
fn inspect_break_and_close_work_without_an_executor() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    assert_eq!(locks.guarantee_blocking().unwrap().level, Level::LeaseBounded);
    assert_eq!(locks.list_blocking("").unwrap().len(), 1);
    let token = guard.token().number;
    assert_eq!(locks.show_blocking("x").unwrap().holders[0].token, Some(token));
    assert_eq!(locks.break_hold_blocking("x", u64::MAX, false).unwrap(), Broken::NotHeld);
    assert_eq!(locks.break_hold_blocking("x", token, false).unwrap(), Broken::Done);
    assert_eq!(locks.close_blocking(Duration::ZERO), 1, "the guard is still there");
}

#[test]
fn warming_up_leaves_nothing_and_waits_for_nobody() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    pollster::block_on(locks.warm(Duration::from_secs(30))).unwrap();
    world.assert_no_leftovers();
    let held = other.mutex("leasehold-warm").blocking().acquire().unwrap();
    locks.warm_blocking(Duration::from_secs(30)).unwrap();
    drop(held);
    let error = locks.warm_blocking(Duration::ZERO).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    world.assert_no_leftovers();
}

//! What happens to requests, releases and holds when the keeper ends, and how many requests a keeper sends.

use std::{sync::Arc, time::Duration};

use leasehold_core::{ErrorKind, Guard, Keeper, Locks, Loss, Previous, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Counting, Faulty, Slow, Verb},
    stopwatch::Stopwatch,
};
use tokio::time::{sleep, timeout};

use crate::{
    CLEAN_UP, World,
    cleanup::{new_client, new_store, paused_runtime},
    eventually,
    late::slow_client as slow_client_on_paused_time,
};

const TTL: Duration = Duration::from_secs(2);

fn engine(world: &World) -> Arc<MemoryEngine> {
    Arc::new(MemoryEngine::new(Arc::clone(&world.store)))
}

/// `Locks` whose keeper runs on a runtime that a test may drop.
fn on_a_runtime(engine: Arc<dyn leasehold_core::Engine>) -> (Locks, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    (Locks::builder(engine).keeper(Keeper::on(runtime.handle().clone())).build(), runtime)
}

/// `Locks` on a connection that a test may delay.
fn slow_client(world: &World) -> (Arc<Slow>, Locks) {
    let slow = Arc::new(Slow::new(Arc::new(Faulty::new(engine(world)))));
    (Arc::clone(&slow), Locks::new(slow))
}

#[test]
fn nothing_hangs_without_the_runtime_of_the_keeper() {
    for remote in [false, true] {
        let world = World::new();
        let inner = engine(&world);
        let engine: Arc<dyn leasehold_core::Engine> =
            if remote { Arc::new(Faulty::new(inner)) } else { inner };
        let (locks, runtime) = on_a_runtime(engine);
        let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
        drop(runtime);
        assert!(!guard.check());
        assert!(pollster::block_on(guard.confirm()).is_err());
        assert!(guard.release_blocking().is_err(), "remote: {remote}");
        assert!(locks.mutex("x").blocking().try_acquire().unwrap_err().is_closed());
        assert!(locks.mutex("x").blocking().acquire_within(TTL).unwrap_err().is_closed());
        assert_eq!(pollster::block_on(locks.close(Duration::from_secs(3600))), 0);
    }
}

#[test]
fn a_keeper_on_a_dead_runtime_is_an_error() {
    let world = World::new();
    let (locks, runtime) = on_a_runtime(engine(&world));
    drop(runtime);
    assert!(locks.mutex("x").blocking().acquire().unwrap_err().is_closed());
    world.assert_no_leftovers();
}

#[test]
fn tries_end_at_close_and_when_dropped() {
    let world = World::new();
    let other = world.client();
    let _guard = other.mutex("x").blocking().acquire().unwrap();
    let counting = Arc::new(Counting::new(Arc::new(Faulty::new(engine(&world)))));
    let locks = Locks::new(Arc::clone(&counting) as _);
    let request = locks.mutex("x").attempts(u32::MAX);
    let mut dropped = Box::pin(request.acquire());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::future::Future::poll(dropped.as_mut(), &mut cx).is_pending());
    eventually("it tries", || counting.count(Verb::Claim).calls > 1);
    drop(dropped);
    let trying = std::thread::spawn(move || request.blocking().acquire());
    eventually("it tries", || counting.count(Verb::Claim).calls > 3);
    pollster::block_on(locks.close(TTL));
    let error = trying.join().unwrap().unwrap_err();
    assert!(error.is_closed(), "{error}");
    let calls = counting.count(Verb::Claim).calls;
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counting.count(Verb::Claim).calls, calls, "no more tries");
}

#[test]
fn a_silent_engine_is_not_reported_as_taken() {
    let world = World::new();
    let (slow, locks) = slow_client(&world);
    slow.hold_requests(Verb::Claim);
    let limit = Duration::from_millis(50);
    for request in [locks.mutex("x"), locks.mutex("x").attempts(3)] {
        let error = request.blocking().acquire_within(limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(!error.is_taken(), "{error}");
    }
    slow.open(Verb::Claim);
    world.assert_no_leftovers();
}

#[test]
fn a_never_reached_engine_is_given_up_for_the_whole_queue() {
    let world = World::new();
    let faulty = Arc::new(Faulty::new(engine(&world)));
    pollster::block_on(faulty.lose_session());
    let (timeout, waiters) = (Duration::from_millis(200), 50);
    let locks = Locks::builder(Arc::clone(&faulty) as _).connect_timeout(timeout).build();
    let watch = Stopwatch::start();
    let waiting: Vec<_> = (0..waiters)
        .map(|_| {
            let request = locks.mutex("x");
            std::thread::spawn(move || request.blocking().acquire().unwrap_err().kind())
        })
        .collect();
    for waiter in waiting {
        assert_eq!(waiter.join().unwrap(), ErrorKind::Unreachable);
    }
    watch.assert_within(timeout * waiters / 2, "each waiter had its own time limit");
    faulty.heal();
    drop(locks.mutex("x").blocking().acquire().unwrap());
}

/// A request that certainly never arrived needs no release: the caller that gives up does not wait for one.
#[test]
fn a_claim_that_never_arrived_is_not_released() {
    let world = World::new();
    let faulty = Arc::new(Faulty::new(engine(&world)));
    pollster::block_on(faulty.lose_session());
    let counting = Arc::new(Counting::new(faulty));
    let locks = Locks::builder(Arc::clone(&counting) as _).connect_timeout(Duration::ZERO).build();
    assert!(locks.mutex("x").blocking().acquire().unwrap_err().is_unreachable());
    pollster::block_on(locks.close(TTL));
    assert!(counting.count(Verb::Claim).calls > 0);
    assert_eq!(counting.count(Verb::Release).calls, 0);
}

#[test]
fn a_late_answer_to_a_try_is_no_restored_engine() {
    let world = World::new();
    let (slow, locks) = slow_client(&world);
    let request = locks.semaphore("x", 8);
    slow.hold_replies(Verb::Claim);
    let early = request.clone();
    let early = std::thread::spawn(move || early.blocking().try_acquire().unwrap());
    eventually("the first was granted", || slow.waiting(Verb::Claim) == 1);
    let late = request.clone();
    let late = std::thread::spawn(move || late.blocking().try_acquire().unwrap());
    eventually("the second was granted", || slow.waiting(Verb::Claim) == 2);
    slow.open(Verb::Claim);
    let (early, late) = (early.join().unwrap(), late.join().unwrap());
    assert!(early.check() && late.check());
    let direct = request.blocking().try_acquire().unwrap();
    assert!(direct.token().number > early.token().number.max(late.token().number));
}

#[test]
fn another_task_gets_the_lock_after_max_hold() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let request = locks.mutex("x").ttl(Duration::from_millis(300));
        let stuck = request.clone().max_hold(Duration::from_millis(50)).acquire().await.unwrap();
        let next = request.acquire_within(TTL).await.unwrap();
        assert_eq!(next.previous(), Previous::Lapsed);
        assert!(next.check() && !stuck.check());
    });
}

#[test]
fn an_owner_does_not_enter_a_hold_ended_by_max_hold() {
    let world = World::new();
    let locks = world.client();
    let owner = leasehold_core::Owner::new("worker 7");
    let request = locks.mutex("x").ttl(Duration::from_secs(3600)).owner(owner);
    let ended = request.clone().max_hold(Duration::from_millis(20)).blocking().acquire().unwrap();
    pollster::block_on(ended.lost());
    assert!(pollster::block_on(ended.confirm()).unwrap_err().is_lost(), "not extended either");
    assert!(request.blocking().try_acquire().unwrap_err().is_taken());
}

#[test]
fn a_panic_of_one_guard_marks_the_hold_as_abandoned() {
    let world = World::new();
    let locks = world.client();
    let request = locks.mutex("x").owner("worker 7");
    let outer = request.blocking().acquire().unwrap();
    let inner = request.blocking().acquire().unwrap();
    let panicked = std::thread::spawn(move || {
        let _inner = inner;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    drop(outer);
    assert_eq!(locks.mutex("x").blocking().acquire().unwrap().previous(), Previous::Abandoned);
}

#[test]
fn close_reaches_requests_that_arrive_meanwhile() {
    for _ in 0..50 {
        let world = World::new();
        let _guard = world.client().mutex("x").blocking().acquire().unwrap();
        let locks = world.client();
        let crowd: Vec<_> = (0..4)
            .map(|_| {
                let request = locks.mutex("x");
                std::thread::spawn(move || request.blocking().acquire().map(drop))
            })
            .collect();
        pollster::block_on(locks.close(Duration::from_secs(3600)));
        for one in crowd {
            let ended = one.join().unwrap();
            assert!(ended.is_ok() || ended.unwrap_err().is_closed());
        }
    }
}

#[test]
fn renewals_and_releases_are_batched() {
    const HOLDS: u64 = 500;
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        let mut guards = Vec::new();
        for number in 0..HOLDS {
            guards.push(locks.mutex(format!("name {number}")).ttl(TTL * 2).acquire().await.unwrap());
            // The grants are spread over a quarter of the time after which a hold is renewed.
            sleep(TTL * 2 / 3 / 4 / HOLDS as u32).await;
        }
        counting.reset();
        sleep(TTL * 2).await;
        let renewed = counting.count(Verb::Renew);
        assert!(renewed.items >= HOLDS && guards.iter().all(Guard::check), "{renewed:?}");
        assert!(renewed.calls * 5 < renewed.items, "{renewed:?}");
        drop(guards);
        sleep(CLEAN_UP).await;
        let released = counting.count(Verb::Release);
        assert!(released.items >= HOLDS && released.calls * 2 < released.items, "{released:?}");
        assert!(locks.list("").await.unwrap().is_empty());
    });
}

#[test]
fn a_lease_counts_from_before_its_request_left() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client_on_paused_time(&store, &env);
        slow.hold_replies(Verb::Claim);
        let mut asking = Box::pin(locks.mutex("x").ttl(TTL).renew(false).acquire());
        let delay = Duration::from_millis(400);
        assert!(timeout(delay, &mut asking).await.is_err());
        assert_eq!(slow.waiting(Verb::Claim), 1, "it was granted");
        slow.open(Verb::Claim);
        let left = asking.await.unwrap().remaining().unwrap();
        assert!(left <= TTL - delay, "{left:?} left of {TTL:?} although the answer took {delay:?}");
    });
}

/// A deferred keeper serves a short-lived process; for everything that lasts longer its thread must start.
#[test]
fn a_deferred_keeper_starts_on_demand() {
    let world = World::new();
    let keeper = Keeper::deferred();
    let locks = Locks::builder(engine(&world)).keeper(keeper.clone()).build();
    let lock = |name: &str| locks.mutex(name).blocking();
    lock("x").acquire().unwrap().release_blocking().unwrap();
    // Only the keeper reports this end.
    let short = locks.mutex("short").max_hold(Duration::from_millis(1)).blocking().acquire().unwrap();
    keeper.begin().unwrap();
    assert_eq!(pollster::block_on(short.lost()), Loss::MaxHold);
    drop(short);
    let other = Locks::builder(engine(&world)).keeper(Keeper::deferred()).build();
    let guard = lock("y").acquire().unwrap();
    let waiter = std::thread::spawn(move || other.mutex("y").blocking().acquire().unwrap().token());
    eventually("it waits", || !locks.show_blocking("y").unwrap().waiters.is_empty());
    let token = guard.token();
    guard.release_blocking().unwrap();
    assert!(waiter.join().unwrap() > token);
    world.assert_no_leftovers();
}

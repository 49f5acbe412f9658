//! Futures that are dropped, and executors that are blocked or dropped.

use std::{
    cell::RefCell,
    thread::{sleep, spawn},
    time::Duration,
};

use futures_util::FutureExt;
use leasehold_testkit::{dropper::drop_at_every_poll, stopwatch::Stopwatch};

use crate::rig::{HELD, LONG, PATIENCE, Rig, SLACK, acquire, millis, rng, until, until_renewed};

#[test]
fn f11_every_worker_is_blocked() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let locks = rig.locks();
    runtime.block_on(async {
        let guard = locks.mutex("a").ttl(HELD).acquire().await.unwrap();
        let bounded = locks.mutex("b").ttl(HELD).max_hold(millis(1000)).acquire().await.unwrap();
        sleep(millis(1000) + rng().millis(0..200));
        until_renewed(&guard);
        assert!(guard.check(), "renewed by the keeper, which has its own thread");
        assert!(!bounded.check(), "max_hold ends the other hold");
    });
}

#[test]
fn f16_acquire_is_dropped_at_every_poll() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    for taken in [false, true] {
        let held = RefCell::new(None);
        let polls = drop_at_every_poll(
            || {
                held.replace(taken.then(|| acquire(&other, "a", LONG)));
                locks.mutex("a").ttl(LONG).acquire()
            },
            // The acquire waits, so release the name.
            || drop(held.take()),
            |polls| {
                drop(held.take());
                let watch = Stopwatch::start();
                acquire(&other, "a", LONG).release_blocking().unwrap();
                watch.assert_within(Duration::from_secs(1), &format!("I11 at {polls}"));
            },
        );
        assert!(polls > 1, "it waits at least for its server");
    }
    until("nothing is left", || rig.left("lock:a") == -2 && rig.waiters("a") == 0);
}

#[test]
fn f17_release_is_dropped_midway() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    for _ in 0..10 {
        let guard = acquire(&locks, "a", LONG);
        let mut release = Box::pin(guard.release());
        let _ = (&mut release).now_or_never();
        drop(release);
        let watch = Stopwatch::start();
        acquire(&other, "a", LONG).release_blocking().unwrap();
        watch.assert_within(SLACK, "the release is completed");
    }
}

#[test]
fn f18_waiter_is_dropped_when_it_is_notified() {
    let (rig, mut rng) = (Rig::new(), rng());
    let (locks, first, second) = (rig.locks(), rig.locks(), rig.locks());
    for _ in 0..15 {
        let guard = acquire(&locks, "a", LONG);
        let mut dropped = Box::pin(first.mutex("a").ttl(LONG).acquire());
        assert!((&mut dropped).now_or_never().is_none());
        until("the first waits", || rig.waiters("a") == 1);
        let waiting = spawn({
            let request = second.mutex("a").ttl(LONG).blocking();
            move || request.acquire_within(PATIENCE)
        });
        until("both wait", || rig.waiters("a") == 2);
        let phase = Duration::from_micros(rng.below(1500));
        let dropping = spawn(move || {
            sleep(phase);
            drop(dropped);
        });
        guard.release_blocking().unwrap();
        let watch = Stopwatch::start();
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
        watch.assert_within(SLACK, "the next waiter was woken");
        dropping.join().unwrap();
    }
}

#[test]
fn f19_guard_is_dropped_without_an_executor() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let locks = rig.locks();
    let guard = runtime.block_on(runtime.spawn({
        let request = locks.mutex("a").ttl(LONG);
        async move { request.acquire().await.unwrap() }
    }));
    drop(runtime);
    drop(guard.unwrap());
    let watch = Stopwatch::start();
    let next = acquire(&rig.locks(), "a", LONG);
    watch.assert_within(SLACK, "the name is released");
    next.release_blocking().unwrap();
    let unreleased = acquire(&locks, "b", LONG);
    assert_eq!(
        pollster::block_on(locks.close(millis(200))),
        1,
        "close reports the guard that was not dropped"
    );
    assert!(!unreleased.check());
}

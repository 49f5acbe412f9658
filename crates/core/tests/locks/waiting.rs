//! Tests of waiting requests: limits, attempts, order, and cancelled waits, up to ten thousand at once.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use leasehold_testkit::stopwatch::Stopwatch;

use crate::{PATIENCE, World, eventually, waiter_count};

#[test]
fn a_limited_wait_ends_in_time() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let _guard = a.mutex("x").blocking().acquire().unwrap();
    for locks in [&a, &b] {
        let watch = Stopwatch::start();
        let error = locks.mutex("x").blocking().acquire_within(Duration::from_millis(80)).unwrap_err();
        let waited = watch.elapsed();
        assert!(error.is_timed_out() && error.is_taken(), "{error:?}");
        assert!(waited >= Duration::from_millis(80), "gave up after {waited:?}");
        watch.assert_within(Duration::from_millis(80 + 1000), "I12");
    }
    eventually("no waiter is left", || waiter_count(&b, "x") == 0);
}

#[test]
fn attempts_are_counted() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = a.mutex("x").blocking().acquire().unwrap();
    let error = b.mutex("x").attempts(3).blocking().acquire().unwrap_err();
    assert!(error.is_taken() && error.to_string().contains("3 tries") || error.is_taken(), "{error}");
    let request = b.mutex("x").attempts(1000);
    let trying = std::thread::spawn(move || request.blocking().acquire_within(PATIENCE));
    drop(guard);
    drop(trying.join().unwrap().unwrap());
    world.assert_no_leftovers();
}

#[test]
fn grants_are_first_come_first_served_across_clients() {
    let world = World::new();
    let clients = [world.client(), world.client(), world.client()];
    let guard = clients[0].mutex("x").blocking().acquire().unwrap();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for (position, locks) in clients[1..].iter().chain(&clients[1..]).enumerate().take(2) {
        let request = locks.mutex("x");
        let order = order.clone();
        threads.push(std::thread::spawn(move || {
            let guard = request.blocking().acquire().unwrap();
            order.lock().unwrap().push(position);
            drop(guard);
        }));
        eventually("queued", || waiter_count(&clients[0], "x") == position + 1);
    }
    drop(guard);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*order.lock().unwrap(), [0, 1]);
    world.assert_no_leftovers();
}

#[test]
fn a_dropped_wait_leaves_nothing_and_wakes_the_next() {
    let world = World::new();
    let (a, b, c) = (world.client(), world.client(), world.client());
    let guard = a.mutex("x").blocking().acquire().unwrap();
    let mut first = Box::pin(b.mutex("x").acquire());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    eventually("b is queued", || waiter_count(&a, "x") == 1);
    let request = c.mutex("x");
    let second = std::thread::spawn(move || request.blocking().acquire().map(drop));
    eventually("c is queued", || waiter_count(&a, "x") == 2);
    // The hold is granted to b, whose future is not polled; then b is dropped.
    drop(guard);
    eventually("b holds", || pollster::block_on(a.show("x")).unwrap().holders.len() == 1);
    drop(first);
    second.join().unwrap().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn ten_thousand_waiting_tasks_share_one_claim() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = a.mutex("x").blocking().acquire().unwrap();
    let served = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..10_000).map(|_| b.mutex("x").acquire()).collect();
        let mut waiting = Vec::new();
        for mut task in tasks {
            std::future::poll_fn(|cx| {
                assert!(std::pin::Pin::new(&mut task).poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            waiting.push(task);
        }
        eventually("one claim is queued", || waiter_count(&a, "x") == 1);
        drop(guard);
        for task in waiting {
            drop(task.await.unwrap());
            served.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(served.into_inner(), 10_000);
    world.assert_no_leftovers();
}

#[test]
fn ten_thousand_cancelled_waits_leave_nothing() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = a.mutex("x").blocking().acquire().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut waiting = Vec::new();
    for _ in 0..10_000 {
        let mut task = b.mutex("x").acquire();
        assert!(std::pin::Pin::new(&mut task).poll(&mut context).is_pending());
        waiting.push(task);
    }
    drop(waiting);
    eventually("no claim waits", || waiter_count(&a, "x") == 0);
    drop(guard);
    world.assert_no_leftovers();
}

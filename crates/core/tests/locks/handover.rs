use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Event, Observe};

use crate::{World, eventually, waiters};

/// Counts grants, local and from the engine, and the longest row of local ones.
#[derive(Default)]
struct Counts {
    local: AtomicUsize,
    engine: AtomicUsize,
    row: Mutex<(usize, usize)>,
}

impl Observe for Counts {
    fn event(&self, event: &Event<'_>) {
        if let Event::Granted { local, .. } = event {
            let counter = if *local { &self.local } else { &self.engine };
            counter.fetch_add(1, Ordering::Relaxed);
            let mut row = self.row.lock().unwrap();
            row.0 = if *local { row.0 + 1 } else { 0 };
            row.1 = row.1.max(row.0);
        }
    }
}

#[test]
fn tasks_of_one_process_hand_over_with_growing_tokens_and_one_at_a_time() {
    let world = World::new();
    let counts = Arc::new(Counts::default());
    let engine = leasehold_core::memory::MemoryEngine::new(Arc::clone(&world.store));
    let locks = leasehold_core::Locks::builder(Arc::new(engine)).observe(counts.clone()).build();
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..64 {
            let request = locks.mutex("x");
            let (inside, last) = (inside.clone(), last.clone());
            tasks.push(runtime.spawn(async move {
                for _ in 0..100 {
                    let guard = request.acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two inside");
                    {
                        let mut last = last.lock().unwrap();
                        assert!(guard.token().number > *last, "{} after {last}", guard.token());
                        *last = guard.token().number;
                    }
                    tokio::task::yield_now().await;
                    inside.store(false, Ordering::SeqCst);
                    drop(guard);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let (local, engine) = (counts.local.load(Ordering::Relaxed), counts.engine.load(Ordering::Relaxed));
    assert_eq!(local + engine, 6400);
    assert!(local > engine * 10, "{local} local, {engine} through the engine");
    assert!(counts.row.lock().unwrap().1 <= 64, "at most 64 in a row");
    world.assert_at_rest();
}

#[test]
fn another_process_gets_its_turn_within_the_bound() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let granted = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let (request, granted, stop) = (a.mutex("x"), granted.clone(), stop.clone());
        threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let guard = request.blocking().acquire().unwrap();
                granted.fetch_add(1, Ordering::Relaxed);
                drop(guard);
            }
        }));
    }
    let mut stood_in_line = 0;
    for _ in 0..20 {
        eventually("a is busy", || granted.load(Ordering::Relaxed) > 100);
        let mut wait = Box::pin(b.mutex("x").acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while wait.as_mut().poll(&mut context).is_pending() {
            if waiters(&b, "x") > 0 {
                // In line: from here on at most one row of local hand-overs may pass, and none while b holds.
                let before = granted.load(Ordering::Relaxed);
                let guard = pollster::block_on(wait.as_mut()).unwrap();
                let passed = granted.load(Ordering::Relaxed) - before;
                assert!(passed <= 64 + 4 + 64, "{passed} others passed");
                drop(guard);
                stood_in_line += 1;
                break;
            }
        }
    }
    assert!(stood_in_line > 0, "b always came at a free moment");
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.assert_at_rest();
}

#[test]
fn a_hold_is_not_handed_to_a_request_of_other_terms() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let request = locks.mutex("x").ttl(Duration::from_millis(200)).renew(false);
    let other = std::thread::spawn(move || request.blocking().acquire().unwrap());
    eventually("it waits", || locks.mutex("x").blocking().try_acquire().is_err());
    std::thread::sleep(Duration::from_millis(5));
    drop(guard);
    let other = other.join().unwrap();
    assert!(other.remaining().unwrap() <= Duration::from_millis(200), "it has the lease it asked for");
}

//! The API under tokio, smol and no executor at all; renewals continue whatever the state of the user's executor.

use std::time::Duration;

use leasehold_core::{Keeper, Locks};

use crate::{World, wait_until_renewed};

/// Long enough for a renewal on a busy machine, and short enough that the renewal, after a third of it, comes within a
/// test.
const TTL: Duration = Duration::from_secs(6);

#[test]
fn under_tokio_smol_and_plain_threads() {
    let world = World::new();
    let locks = world.client();
    let section = |locks: Locks| async move {
        let guard = locks.mutex("x").acquire().await.unwrap();
        guard.run(std::future::ready(())).await.unwrap();
        guard.release().await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(section(locks.clone()));
    smol::block_on(section(locks.clone()));
    pollster::block_on(section(locks.clone()));
    world.assert_no_leftovers();
}

#[test]
fn a_blocked_executor_does_not_stop_renewals() {
    let world = World::new();
    let locks = world.client();
    let section = |name| {
        let request = locks.mutex(name).ttl(TTL);
        async move {
            let guard = request.acquire().await.unwrap();
            // Blocks the executor.
            wait_until_renewed(&guard);
            guard.release().await.unwrap();
        }
    };
    std::thread::scope(|scope| {
        let (on_tokio, on_smol) = (section("x"), section("y"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        scope.spawn(move || runtime.block_on(on_tokio));
        scope.spawn(move || smol::block_on(on_smol));
    });
    world.assert_no_leftovers();
}

#[test]
fn a_dropped_executor_does_not_stop_renewals() {
    let world = World::new();
    let locks = world.client();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let guard = runtime.block_on(locks.mutex("x").ttl(TTL).acquire()).unwrap();
    drop(runtime);
    wait_until_renewed(&guard);
    assert!(guard.check());
    drop(guard);
    world.assert_no_leftovers();
}

#[test]
fn a_dropped_keeper_runtime_ends_holds_and_waits() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = leasehold_core::memory::MemoryEngine::new(std::sync::Arc::clone(&world.store));
    let locks =
        Locks::builder(std::sync::Arc::new(engine)).keeper(Keeper::on(runtime.handle().clone())).build();
    let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
    wait_until_renewed(&guard);
    assert!(guard.check(), "renewed on the caller's runtime");
    let waiting = locks.mutex("x");
    let waiter = std::thread::spawn(move || waiting.blocking().acquire());
    let lost = guard.lost();
    crate::eventually("the wait started", || {
        let error = locks.mutex("x").blocking().try_acquire();
        error.is_err()
    });
    drop(runtime);
    assert!(!guard.check());
    pollster::block_on(lost);
    assert!(waiter.join().unwrap().is_err());
    assert!(locks.mutex("z").blocking().acquire().unwrap_err().is_closed());
}

/// The keeper runs on the thread that such a call would block, so the call would never return.
#[test]
fn a_blocking_call_on_the_only_keeper_thread_panics() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = leasehold_core::memory::MemoryEngine::new(std::sync::Arc::clone(&world.store));
    let locks =
        Locks::builder(std::sync::Arc::new(engine)).keeper(Keeper::on(runtime.handle().clone())).build();
    let holder = world.client().mutex("x").blocking().acquire().unwrap();
    runtime.block_on(async {
        let (here, there) = (locks.clone(), locks.clone());
        let blocked = tokio::spawn(async move { drop(here.mutex("x").blocking().acquire()) });
        assert!(blocked.await.unwrap_err().is_panic(), "it panics instead of waiting forever");
        // Another thread of the runtime may block.
        let beside = tokio::task::spawn_blocking(move || there.mutex("x").blocking().acquire().unwrap());
        holder.release().await.unwrap();
        let guard = beside.await.unwrap();
        let guard = tokio::task::spawn_blocking(move || guard.confirm_blocking().map(|()| guard));
        guard.await.unwrap().unwrap().release().await.unwrap();
    });
    drop((locks, runtime));
    world.assert_no_leftovers();
}

/// Keeps the error of a blocking call in an observer.
#[derive(Default)]
struct CallsBlocking {
    locks: std::sync::OnceLock<Locks>,
    error: std::sync::Mutex<Option<leasehold_core::Error>>,
}

impl leasehold_core::Observe for CallsBlocking {
    fn event(&self, event: &leasehold_core::Event<'_>) {
        if let leasehold_core::Event::Granted { .. } = event
            && let Some(locks) = self.locks.get()
        {
            *self.error.lock().unwrap() = locks.mutex("taken").blocking().acquire().err();
        }
    }
}

/// On the thread of the keeper, on the workers of a runtime, and on the thread of the user.
#[test]
fn a_blocking_call_in_an_observer_is_an_error() {
    let on_workers = |workers| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all().build().unwrap()
    };
    calls_blocking_in_an_observer(Keeper::thread());
    for workers in [1, 2] {
        let runtime = on_workers(workers);
        calls_blocking_in_an_observer(Keeper::on(runtime.handle().clone()));
    }
}

fn calls_blocking_in_an_observer(keeper: Keeper) {
    let world = World::new();
    let engine = leasehold_core::memory::MemoryEngine::new(std::sync::Arc::clone(&world.store));
    let observer = std::sync::Arc::new(CallsBlocking::default());
    let builder = Locks::builder(std::sync::Arc::new(engine)).keeper(keeper);
    let locks = builder.observe(std::sync::Arc::clone(&observer) as _).build();
    let other = world.client();
    let [taken, held] = ["taken", "x"].map(|name| other.mutex(name).blocking().acquire().unwrap());
    let request = locks.mutex("x");
    let waiter = std::thread::spawn(move || request.blocking().acquire().unwrap());
    crate::eventually("it waits", || crate::waiter_count(&other, "x") == 1);
    assert!(observer.locks.set(locks.clone()).is_ok());
    held.release_blocking().unwrap();
    // The keeper grants, and calls the observer.
    drop(waiter.join().unwrap());
    let ends_with_an_error = || {
        let error = crate::eventually_some("the call has ended", || observer.error.lock().unwrap().take());
        assert!(error.is_misconfigured() && error.to_string().contains("an observer"), "{error}");
    };
    ends_with_an_error();
    // The thread of the user grants.
    drop(locks.mutex("free").blocking().acquire().unwrap());
    ends_with_an_error();
    drop(taken);
    locks.close_blocking(crate::PATIENCE);
    world.assert_no_leftovers();
}

#[test]
fn several_locks_may_share_a_keeper() {
    let world = World::new();
    let keeper = Keeper::thread();
    let make = || {
        let engine = leasehold_core::memory::MemoryEngine::new(std::sync::Arc::clone(&world.store));
        Locks::builder(std::sync::Arc::new(engine)).keeper(keeper.clone()).build()
    };
    let (a, b) = (make(), make());
    let first = a.mutex("x").blocking().acquire().unwrap();
    let request = b.mutex("x");
    let waiter = std::thread::spawn(move || request.blocking().acquire().map(drop));
    crate::eventually("b waits", || crate::waiter_count(&a, "x") == 1);
    drop(first);
    waiter.join().unwrap().unwrap();
    world.assert_no_leftovers();
}

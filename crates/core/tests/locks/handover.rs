//! Tests of hand-over inside a process: its bounds in time and tokens, and what must not be handed over.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use leasehold_core::{
    Clock, Env, Error, Event, Guard, Instant, Keeper, Locks, Observe, Owner,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::Verb;
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::{
    PATIENCE, World,
    cleanup::{new_client, new_store, paused_runtime},
    eventually,
    late::slow_client,
    waiter_count,
};

/// A pause in which the tasks that are ready run.
const MOMENT: Duration = Duration::from_millis(1);

/// Counts hand-overs inside the process and grants by the engine, and finds the longest series of hand-overs.
#[derive(Default)]
struct Counts {
    local: AtomicUsize,
    engine: AtomicUsize,
    /// The length of the running series of hand-overs, and of the longest.
    series: Mutex<(usize, usize)>,
}

impl Observe for Counts {
    fn event(&self, event: &Event<'_>) {
        if let Event::Granted { local, .. } = event {
            let counter = if *local { &self.local } else { &self.engine };
            counter.fetch_add(1, Ordering::Relaxed);
            let mut series = self.series.lock().unwrap();
            series.0 = if *local { series.0 + 1 } else { 0 };
            series.1 = series.1.max(series.0);
        }
    }
}

#[test]
fn tasks_hand_over_one_at_a_time_with_growing_tokens() {
    let counts = Arc::new(Counts::default());
    // A run of hand-overs ends by time or by tokens. With a stopped clock it ends by tokens, however slow the machine
    // is.
    let clock: Arc<dyn Clock> = Arc::new(StoppedClock(AtomicU64::new(1_000_000_000)));
    let env = Env { clock, ..Env::system() };
    let world = World { store: MemoryStore::new(env.lineage(), Arc::clone(&env.clock)) };
    let engine = MemoryEngine::new(Arc::clone(&world.store));
    let locks = Locks::builder(Arc::new(engine)).env(env).observe(counts.clone()).build();
    let inner = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..64 {
            let request = locks.mutex("x");
            let (inner, last) = (inner.clone(), last.clone());
            tasks.push(runtime.spawn(async move {
                for _ in 0..100 {
                    let guard = request.acquire().await.unwrap();
                    assert!(!inner.swap(true, Ordering::SeqCst), "two inside");
                    {
                        let mut last = last.lock().unwrap();
                        assert!(guard.token().number > *last, "{} after {last}", guard.token());
                        *last = guard.token().number;
                    }
                    tokio::task::yield_now().await;
                    inner.store(false, Ordering::SeqCst);
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
    assert!(counts.series.lock().unwrap().1 <= 64, "at most 64 in a row");
    world.assert_no_leftovers();
}

#[test]
fn another_process_is_granted_within_the_bound() {
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
    let mut queued = 0;
    // The name is often free when b asks; on a busy machine nearly always.
    let limit = std::time::Instant::now() + PATIENCE * 5;
    while queued < 5 {
        assert!(std::time::Instant::now() < limit, "the name was free whenever b asked");
        eventually("a is busy", || granted.load(Ordering::Relaxed) > 100);
        let mut wait = Box::pin(b.mutex("x").acquire());
        let mut context = Context::from_waker(Waker::noop());
        while wait.as_mut().poll(&mut context).is_pending() {
            if waiter_count(&b, "x") > 0 {
                // b is in the queue: from here on at most one run of local hand-overs may pass it, and none while b
                // holds.
                let before = granted.load(Ordering::Relaxed);
                let guard = pollster::block_on(wait.as_mut()).unwrap();
                let passed = granted.load(Ordering::Relaxed) - before;
                assert!(passed <= 64 + 4 + 64, "{passed} others passed");
                drop(guard);
                queued += 1;
                break;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.assert_no_leftovers();
}

#[test]
fn a_hold_is_not_handed_over_to_other_terms() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    // A ttl shorter than the default, and long enough for a busy machine.
    let ttl = Duration::from_secs(10);
    let mut other = Box::pin(locks.mutex("x").ttl(ttl).renew(false).acquire());
    assert!(!is_granted(other.as_mut()));
    drop(guard);
    let other = pollster::block_on(other).unwrap();
    assert!(other.remaining().unwrap() <= ttl, "it has the lease it asked for");
}

/// A stopped clock.
pub(crate) struct StoppedClock(AtomicU64);

impl StoppedClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A world and a client of it on a stopped clock, with a keeper that does not run: nothing happens in the
/// background.
pub(crate) fn world_on_stopped_clock() -> (World, Locks, Arc<StoppedClock>, Runtime) {
    let clock = Arc::new(StoppedClock(AtomicU64::new(1_000_000_000)));
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::system() };
    let world = World { store: MemoryStore::new(env.lineage(), Arc::clone(&env.clock)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Arc::new(MemoryEngine::new(Arc::clone(&world.store)));
    let locks = Locks::builder(engine).env(env).keeper(Keeper::on(runtime.handle().clone())).build();
    (world, locks, clock, runtime)
}

fn is_granted<F: Future<Output = Result<Guard, Error>>>(wait: Pin<&mut F>) -> bool {
    wait.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn hand_over_is_bounded_in_time_for_other_processes() {
    for (held, stays) in [(Duration::from_millis(49), true), (Duration::from_millis(50), false)] {
        let (world, locks, clock, _runtime) = world_on_stopped_clock();
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        let mut local = Box::pin(locks.mutex("x").acquire());
        assert!(!is_granted(local.as_mut()));
        let other = world.client();
        let mut remote = Box::pin(other.mutex("x").acquire());
        assert!(!is_granted(remote.as_mut()));
        eventually("the remote claim is queued", || waiter_count(&other, "x") == 1);
        clock.advance(held);
        drop(guard);
        assert_eq!(is_granted(local.as_mut()), stays, "after {held:?}");
    }
}

#[test]
fn hand_over_is_bounded_by_the_tokens() {
    let (world, locks, _clock, _runtime) = world_on_stopped_clock();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let mut locals: Vec<_> = (0..100).map(|_| Box::pin(locks.mutex("x").acquire())).collect();
    assert!(!locals.iter_mut().any(|wait| is_granted(wait.as_mut())));
    let other = world.client();
    let mut remote = Box::pin(other.mutex("x").acquire());
    assert!(!is_granted(remote.as_mut()));
    eventually("the remote claim is queued", || waiter_count(&other, "x") == 1);
    drop(guard);
    // Each of them releases as soon as it is granted.
    let granted = locals.iter_mut().map_while(|wait| is_granted(wait.as_mut()).then_some(())).count();
    assert!(granted > 0 && granted < locals.len(), "{granted} were granted before the remote claim");
}

#[test]
fn a_hold_with_a_minimum_hold_is_not_handed_over() {
    let (world, locks, _clock, _runtime) = world_on_stopped_clock();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    let mut local = Box::pin(locks.mutex("x").acquire());
    assert!(!is_granted(local.as_mut()));
    pollster::block_on(guard.release_at_least(Duration::from_secs(3600))).unwrap();
    assert!(!is_granted(local.as_mut()));
    let view = pollster::block_on(world.client().show("x")).unwrap();
    assert_eq!(view.holders[0].owner, leasehold_core::lock_state::MIN_HOLD_OWNER);
}

/// Guards that share a hold are released one after the other: the minimum hold time of one must survive the release of
/// another.
#[test]
fn a_minimum_hold_of_one_guard_starts_at_the_last_release() {
    const MIN_HOLD: Duration = Duration::from_secs(3600);
    for (mode, stays) in [
        ("readers", Duration::ZERO),
        ("readers", MIN_HOLD / 2),
        ("one owner", MIN_HOLD / 2),
        ("readers", MIN_HOLD),
    ] {
        let (world, locks, clock, _runtime) = world_on_stopped_clock();
        let me = Owner::new("me");
        let guard = || match mode {
            "readers" => locks.rw("x").read().ttl(MIN_HOLD * 2).blocking().acquire().unwrap(),
            _ => locks.mutex("x").ttl(MIN_HOLD * 2).owner(me.clone()).blocking().acquire().unwrap(),
        };
        let (first, last) = (guard(), guard());
        pollster::block_on(first.release_at_least(MIN_HOLD)).unwrap();
        clock.advance(stays);
        let other = world.client();
        let taken = || match other.rw("x").write().blocking().try_acquire() {
            Ok(guard) => guard.release_blocking().is_err(),
            Err(error) => error.is_taken(),
        };
        assert!(taken(), "{mode}: the last one holds it");
        last.release_blocking().unwrap();
        assert_eq!(taken(), stays < MIN_HOLD, "{mode}, released after {stays:?}");
        clock.advance((MIN_HOLD - stays).saturating_sub(Duration::from_secs(1)));
        assert_eq!(taken(), stays < MIN_HOLD, "{mode}, released after {stays:?}");
        clock.advance(Duration::from_secs(1));
        assert!(!taken(), "{mode}, released after {stays:?}: its time is over");
    }
}

#[test]
fn a_guard_with_an_unnoticed_loss_hands_nothing_over() {
    let (_world, locks, clock, _runtime) = world_on_stopped_clock();
    let max_hold = Duration::from_millis(10);
    let guard = locks.mutex("x").max_hold(max_hold).blocking().acquire().unwrap();
    let mut local = Box::pin(locks.mutex("x").acquire());
    assert!(!is_granted(local.as_mut()));
    clock.advance(max_hold);
    assert!(guard.release_blocking().unwrap_err().is_lost(), "it was not freed by this");
    assert!(is_granted(local.as_mut()), "through its own claim");
}

/// I10: the engine is not asked when one of several guards of a hold is released; the result comes from local
/// knowledge.
#[test]
fn a_lapsed_shared_hold_is_reported_to_each_guard() {
    let (_world, locks, clock, _runtime) = world_on_stopped_clock();
    let (me, ttl) = (Owner::new("me"), Duration::from_secs(10));
    let writer = || locks.mutex("x").owner(me.clone()).ttl(ttl).blocking().acquire().unwrap();
    let reader = || locks.rw("y").read().ttl(ttl).blocking().acquire().unwrap();
    let (outer, inner, early) = (writer(), writer(), writer());
    let (reader_a, reader_b) = (reader(), reader());
    early.release_blocking().expect("it was held until now");
    clock.advance(ttl);
    for guard in [inner, outer, reader_b, reader_a] {
        assert!(guard.release_blocking().unwrap_err().is_lost());
    }
}

#[test]
fn a_reader_joins_no_hold_past_a_waiting_writer() {
    let (_world, locks, _clock, _runtime) = world_on_stopped_clock();
    let lock = locks.rw("x");
    let reader = lock.read().blocking().acquire().unwrap();
    drop(lock.read().blocking().try_acquire().expect("readers share"));
    let mut writer = Box::pin(lock.write().acquire());
    assert!(!is_granted(writer.as_mut()));
    assert!(lock.read().blocking().try_acquire().unwrap_err().is_taken());
    drop(reader);
    assert!(is_granted(writer.as_mut()));
}

/// A claim waits on the engine while a try of the same process is granted, and that hold is handed over to the claim's
/// request. The claim is then useless, and must not become the next holder, of which no client knows.
#[test]
fn a_claim_whose_request_got_a_local_hold_leaves_the_queue() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (other, ..) = new_client(&store, &env);
        let (locks, slow) = slow_client(&store, &env);
        slow.hold_replies(Verb::Claim);
        let request = locks.mutex("x");
        let (mut trying, mut waiting) = (Box::pin(request.try_acquire()), Box::pin(request.acquire()));
        assert!(timeout(MOMENT, &mut trying).await.is_err());
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        slow.open(Verb::Claim);
        let try_guard = trying.await.unwrap();
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        assert_eq!(other.show("x").await.unwrap().waiters.len(), 1);
        try_guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        sleep(MOMENT).await;
        assert!(other.show("x").await.unwrap().waiters.is_empty(), "no claim waits");
        guard.release().await.unwrap();
        assert!(other.mutex("x").try_acquire().await.unwrap().check());
    });
}

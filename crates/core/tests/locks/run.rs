//! Work under a lock in one call, async and blocking.

use std::{
    cell::Cell,
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, ErrorKind, Previous, RunError, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Slow, Verb},
    dropper::poll_once,
};

use crate::World;

#[test]
fn work_runs_under_the_hold_and_the_release_is_confirmed() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let token = pollster::block_on(locks.mutex("x").run(async |guard| {
        assert!(other.mutex("x").try_acquire().await.unwrap_err().is_taken());
        guard.token()
    }));
    let next = other.mutex("x").blocking().try_run(|guard| guard.token()).unwrap();
    assert!(next > token.unwrap());
    let within = other.mutex("x").run_within(Duration::ZERO, async |_| 1);
    assert_eq!(pollster::block_on(within).unwrap(), 1);
    world.assert_no_leftovers();
}

/// The errors of the work are apart from those of the lock, and an error of the work releases as a success does.
#[test]
fn an_error_of_the_work_is_the_inner_result() {
    let world = World::new();
    let locks = world.client();
    let output = pollster::block_on(locks.mutex("x").run(async |_| Err::<(), _>("sold out")));
    assert_eq!(output.unwrap(), Err("sold out"));
    assert_eq!(locks.mutex("x").blocking().run(|_| Err::<(), _>(5)).unwrap(), Err(5));
    let next = world.client().mutex("x").blocking().try_acquire().unwrap();
    assert_eq!(next.previous(), Previous::Clean);
}

#[test]
fn work_does_not_begin_without_the_lock() {
    let world = World::new();
    let locks = world.client();
    let held = world.client().mutex("x").blocking().acquire().unwrap();
    let begun = Cell::new(false);
    let error = pollster::block_on(locks.mutex("x").try_run(async |_| begun.set(true))).unwrap_err();
    assert!(matches!(&error, RunError::NotAcquired(error) if error.is_taken()), "{error:?}");
    let error = locks.mutex("x").blocking().run_within(Duration::ZERO, |_| begun.set(true)).unwrap_err();
    assert!(matches!(&error, RunError::NotAcquired(error) if error.is_timed_out()), "{error:?}");
    assert!(error.into_output().is_none() && !begun.get());
    drop(held);
    world.assert_no_leftovers();
}

/// Notes, when it is dropped, whether the engine still has the hold.
struct Dropped<'a>(&'a Cell<Option<bool>>, leasehold_core::Locks);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        let holders = self.1.show_blocking("x").unwrap().holders;
        self.0.set(Some(holders.iter().any(|holder| holder.owner == "worker")));
    }
}

#[test]
fn a_loss_drops_the_work_before_the_release() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let still_held = Cell::new(None);
    let max_hold = Duration::from_millis(50);
    let request = locks.mutex("x").owner("worker").max_hold(max_hold);
    let error = pollster::block_on(request.run(async |_| {
        let _dropped = Dropped(&still_held, other.clone());
        pending::<()>().await;
    }));
    let error = error.unwrap_err();
    assert!(matches!(&error, RunError::Cancelled(error) if error.is_lost()), "{error:?}");
    assert_eq!(still_held.get(), Some(true), "the work ended before the release");
    let as_error = Error::from(error);
    assert!(as_error.is_lost(), "{as_error}");
    assert!(as_error.to_string().starts_with("the work under the lock was cancelled: the hold of \"x\""));
    world.assert_no_leftovers();
}

#[test]
fn the_output_of_work_whose_hold_was_lost_is_kept() {
    let world = World::new();
    let (locks, operator) = (world.client(), world.client());
    let error = locks.mutex("x").blocking().run(|guard| {
        operator.break_hold_blocking("x", guard.token().number, true).unwrap();
        "sold"
    });
    let error = error.unwrap_err();
    assert!(error.error().is_lost(), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("the work under the lock ran to its end, but the hold of \"x\" was lost")
    );
    assert_eq!(error.into_output(), Some("sold"));
    world.assert_no_leftovers();
}

/// The keeper ends before the engine has answered the release.
#[test]
fn the_output_of_work_whose_release_is_unknown_is_kept() {
    let world = World::new();
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
    let locks = leasehold_core::Locks::new(Arc::clone(&slow) as _);
    // The keeper stops asking for the answer when the lease has run out.
    let request = locks.mutex("x").ttl(Duration::from_millis(200));
    let mut running = Box::pin(request.run(async |_| {
        slow.hold_replies(Verb::Release);
        "sold"
    }));
    let early = crate::eventually_some("the release was sent", || match poll_once(running.as_mut()) {
        Some(result) => Some(Some(result)),
        None => (slow.waiting(Verb::Release) == 1).then_some(None),
    });
    assert!(early.is_none(), "the release has no answer yet");
    locks.close_blocking(Duration::ZERO);
    let error = pollster::block_on(running).unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(error.into_output(), Some("sold"));
    slow.open(Verb::Release);
    world.assert_no_leftovers();
}

#[test]
fn a_dropped_run_leaves_nothing() {
    let world = World::new();
    let locks = world.client();
    let request = locks.mutex("x");
    let drops = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Counts(Arc::clone(&drops));
    let mut running = Box::pin(request.run(async move |_| {
        let _counts = counts;
        pending::<()>().await;
    }));
    assert!(poll_once(running.as_mut()).is_none());
    assert!(world.client().mutex("x").blocking().try_acquire().unwrap_err().is_taken());
    drop(running);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    world.assert_no_leftovers();
}

/// A web server drops the handler when the client hangs up.
#[test]
fn work_that_is_dropped_half_done_is_reported_to_the_next_holder() {
    let world = World::new();
    let locks = world.client();
    let previous = || world.client().mutex("x").blocking().acquire().unwrap().previous();
    let drop_half_done = |mut running: Pin<Box<dyn Future<Output = ()>>>| {
        assert!(poll_once(running.as_mut()).is_none());
    };
    let request = locks.mutex("x");
    drop_half_done(Box::pin(async { request.run(async |_| pending().await).await.unwrap() }));
    assert_eq!(previous(), Previous::Abandoned);
    assert_eq!(previous(), Previous::Clean, "each end is reported to one holder");
    let election = locks.election("x");
    drop_half_done(Box::pin(async { election.run(async |_| pending().await).await.unwrap() }));
    assert_eq!(previous(), Previous::Abandoned);
    let previous = || world.client().mutex("order").blocking().acquire().unwrap().previous();
    let once = locks.once("order");
    drop_half_done(Box::pin(async {
        once.run(async |_| pending::<Result<&str, ()>>().await).await.map(drop).unwrap();
    }));
    assert_eq!(previous(), Previous::Abandoned);
    // An error of the work is an end of its own choice.
    pollster::block_on(once.run(async |_| Err::<&str, _>("declined"))).unwrap_err();
    assert_eq!(previous(), Previous::Clean);
    // Work that is cut off by its longest time is half done, too.
    let cut_off =
        locks.mutex("order").max_hold(Duration::from_millis(20)).run(async |_| pending::<()>().await);
    assert!(pollster::block_on(cut_off).unwrap_err().error().is_lost());
    assert_eq!(previous(), Previous::Abandoned);
    world.assert_no_leftovers();
}

#[test]
fn a_panic_of_the_work_is_reported_to_the_next_holder() {
    let world = World::new();
    let request = world.client().mutex("x");
    let blocking = request.clone();
    let panicked =
        std::thread::spawn(move || pollster::block_on(request.run(async |_| panic!("on purpose"))));
    assert!(panicked.join().is_err());
    assert_eq!(world.client().mutex("x").blocking().acquire().unwrap().previous(), Previous::Abandoned);
    assert!(std::thread::spawn(move || blocking.blocking().run(|_| panic!("on purpose"))).join().is_err());
    assert_eq!(world.client().mutex("x").blocking().acquire().unwrap().previous(), Previous::Abandoned);
}

/// The number of allocations of a pair on this thread, which on the memory engine does all the work.
fn allocations(pair: impl Fn()) -> u64 {
    const PAIRS: u64 = 100;
    // The first pairs fill tables that stay.
    (0..PAIRS).for_each(|_| pair());
    let counted = allocation_counter::measure(|| (0..PAIRS).for_each(|_| pair()));
    assert!(counted.count_total >= PAIRS, "the counter counts nothing");
    // The few allocations of tables that grow do not count.
    counted.count_total / PAIRS
}

#[test]
fn a_run_allocates_no_more_than_an_acquire_and_a_release() {
    let world = World::new();
    let locks = world.client();
    let request = locks.mutex("x");
    let by_hand = allocations(|| {
        pollster::block_on(async {
            let guard = request.acquire().await.unwrap();
            guard.run(std::future::ready(())).await.unwrap();
            guard.release().await.unwrap();
        });
    });
    let by_run = allocations(|| pollster::block_on(request.run(async |_| ())).unwrap());
    assert_eq!(by_run, by_hand);
    let blocking = request.blocking();
    let by_hand = allocations(|| blocking.acquire().unwrap().release_blocking().unwrap());
    assert_eq!(allocations(|| blocking.run(|_| ()).unwrap()), by_hand);
}

#[test]
fn a_set_of_one_name_allocates_no_more_than_a_mutex() {
    let world = World::new();
    let locks = world.client();
    let (request, set) = (locks.mutex("x"), locks.all().mutex("x"));
    let by_hand = allocations(|| {
        pollster::block_on(async { request.acquire().await.unwrap().release().await.unwrap() });
    });
    let by_set = allocations(|| {
        pollster::block_on(async { set.acquire().await.unwrap().release().await.unwrap() });
    });
    assert_eq!(by_set, by_hand);
    let blocking = request.blocking();
    let by_hand = allocations(|| blocking.acquire().unwrap().release_blocking().unwrap());
    let blocking = set.blocking();
    assert_eq!(allocations(|| blocking.acquire().unwrap().release_blocking().unwrap()), by_hand);
}

/// A run may be a task of a runtime with several threads.
#[test]
fn a_run_can_be_spawned() {
    let world = World::new();
    let locks = world.client();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let runs = (0..8).map(|number: u32| {
        let locks = locks.clone();
        runtime.spawn(async move {
            let request = locks.mutex("x");
            let text = format!("run {number}");
            request
                .run(async |guard| {
                    tokio::task::yield_now().await;
                    (guard.check(), text.len())
                })
                .await
        })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(runtime.block_on(run).unwrap().unwrap(), (true, 5));
    }
    world.assert_no_leftovers();
}

//! The limits on waiting requests. On paused time.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use leasehold_core::{Acquire, Error, Locks, memory::MemoryEngine};
use leasehold_testkit::decorators::Verb;

use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
};

/// Polls a request once; the request must wait.
fn begin(request: &mut Pin<Box<Acquire>>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(request.as_mut().poll(&mut context).is_pending());
}

#[test]
fn one_more_request_for_a_name_is_refused_without_a_request_to_the_engine() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((holder, ..), (locks, _, counting)) = (new_client(&store, &env), new_client(&store, &env));
        let _guard = holder.mutex("x").acquire().await.unwrap();
        let request = locks.mutex("x").max_waiting(2);
        let mut waiting = [request.acquire(), request.acquire()].map(Box::pin);
        waiting.iter_mut().for_each(begin);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let sent = counting.count(Verb::Claim).calls;
        let error = request.acquire().await.unwrap_err();
        let reason =
            "busy: requests of this process that wait for this name: 2, and max_waiting allows no more";
        assert!(error.is_busy() && !error.is_taken() && error.to_string().contains(reason), "{error}");
        assert_eq!(counting.count(Verb::Claim).calls, sent);
        assert!(request.try_acquire().await.unwrap_err().is_taken(), "a try does not wait");
        assert!(locks.mutex("y").max_waiting(1).acquire().await.unwrap().check(), "another name");
        let [first, second] = waiting;
        drop(first);
        begin(&mut Box::pin(request.acquire()));
        drop(second);
    });
}

/// Makes a request for `y` at its wake-up, and keeps the outcome of the first poll.
struct AsksWhenWoken {
    locks: Locks,
    outcome: Mutex<Option<Poll<Result<(), Error>>>>,
}

impl Wake for AsksWhenWoken {
    fn wake(self: Arc<Self>) {
        let mut request = Box::pin(self.locks.mutex("y").acquire());
        let polled = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        *self.outcome.lock().unwrap() = Some(polled.map_ok(drop));
    }
}

/// The keeper has not returned yet from the wake-up that tells the outcome.
#[test]
fn a_wait_does_not_count_any_more_when_its_outcome_is_told() {
    for is_granted in [false, true] {
        let world = World::new();
        let engine = MemoryEngine::new(Arc::clone(&world.store));
        let locks = Locks::builder(Arc::new(engine)).max_waiting(1).build();
        let held = world.client().mutex("x").blocking().acquire().unwrap();
        let limit = if is_granted { crate::PATIENCE } else { Duration::from_millis(1) };
        let mut waiting = Box::pin(locks.mutex("x").acquire_within(limit));
        let asks = Arc::new(AsksWhenWoken { locks, outcome: Mutex::new(None) });
        let waker = Waker::from(Arc::clone(&asks));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let held = Some(held).filter(|_| !is_granted);
        let outcome = crate::eventually_some("it is woken", || asks.outcome.lock().unwrap().take());
        assert!(matches!(outcome, Poll::Ready(Ok(()))), "granted: {is_granted}: {outcome:?}");
        assert_eq!(pollster::block_on(waiting).is_ok(), is_granted);
        drop(held);
        world.assert_no_leftovers();
    }
}

#[test]
fn the_limit_of_all_names_counts_every_way_in_which_a_wait_ends() {
    let world = World::new();
    let engine = MemoryEngine::new(Arc::clone(&world.store));
    let locks = Locks::builder(Arc::new(engine)).max_waiting(1).build();
    let other = world.client();
    for round in 0..3 {
        let guard = other.mutex("x").blocking().acquire().unwrap();
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        begin(&mut waiting);
        let error = locks.mutex("y").blocking().acquire().unwrap_err();
        let reason = "busy: requests of this process that wait for all names together: 1";
        assert!(error.is_busy() && error.to_string().contains(reason), "{error}");
        match round {
            0 => drop(waiting),
            1 => {
                drop(guard);
                drop(pollster::block_on(waiting).unwrap());
            }
            _ => {
                drop(waiting);
                let short = locks.mutex("x").blocking().acquire_within(Duration::from_millis(1));
                assert!(short.unwrap_err().is_timed_out());
            }
        }
        drop(locks.mutex("y").blocking().acquire().unwrap());
    }
    world.assert_no_leftovers();
}

#[test]
fn a_limit_of_zero_is_refused() {
    let error = World::new().client().mutex("x").max_waiting(0).blocking().acquire().unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("max_waiting is zero"), "{error}");
}

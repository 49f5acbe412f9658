//! Tests of answers that come late, and of events that overtake them. On paused time.

use std::{pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{
    Env, Error, Guard, Keeper, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::{Fault, Slow, Verb};
use tokio::time::{sleep, timeout};

use crate::cleanup::{new_client, new_store, paused_runtime};

const TTL: Duration = Duration::from_millis(200);
/// A pause in which the tasks that are ready run.
const MOMENT: Duration = Duration::from_millis(1);

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>>>>;

/// A client of `store` on a connection that a test may delay.
pub(crate) fn slow_client(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Slow>) {
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(store)))));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    (Locks::builder(Arc::clone(&slow) as _).keeper(keeper).env(env.clone()).build(), slow)
}

#[test]
fn a_grant_answered_after_its_lease_is_not_valid() {
    for tries in [false, true] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (locks, slow) = slow_client(&store, &env);
            let request = locks.mutex("x").ttl(TTL);
            slow.hold_replies(Verb::Claim);
            let mut acquiring: Acquiring =
                if tries { Box::pin(request.try_acquire()) } else { Box::pin(request.acquire()) };
            assert!(timeout(TTL, &mut acquiring).await.is_err());
            slow.open(Verb::Claim);
            match acquiring.await {
                Ok(guard) => assert!(!tries && guard.check(), "through a second claim"),
                Err(error) => assert!(tries && error.is_unreachable(), "{error}"),
            }
        });
    }
}

/// A grant is answered so late, for example, when another transaction had locked the row of the name in a database.
#[test]
fn a_grant_answered_after_half_of_its_lease_is_extended_first() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        slow.hold_replies(Verb::Claim);
        let mut acquiring = Box::pin(locks.mutex("x").ttl(TTL).renew(false).acquire());
        assert!(timeout(TTL * 3 / 4, &mut acquiring).await.is_err());
        slow.open(Verb::Claim);
        let guard = acquiring.await.unwrap();
        assert!(guard.remaining() > Some(TTL * 3 / 4), "{:?}", guard.remaining());
        guard.release().await.unwrap();
    });
}

/// I13: a grant that arrives after half of its lease is extended first. The claim itself has the name then.
#[test]
fn a_wait_that_ends_while_its_grant_is_extended_does_not_end_as_taken() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        slow.hold_replies(Verb::Claim);
        let mut acquiring = Box::pin(locks.mutex("x").ttl(TTL).acquire_within(TTL * 7 / 10));
        assert!(timeout(TTL * 6 / 10, &mut acquiring).await.is_err());
        // The answer arrives, and the next request does not.
        slow.open(Verb::Claim);
        slow.hold_requests(Verb::Claim);
        let error = acquiring.await.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
    });
}

#[test]
fn a_grant_pushed_late_is_extended_first() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, slow) = slow_client(&store, &env);
        let guard = holder.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(waiter.mutex("x").ttl(TTL).renew(false).acquire());
        slow.hold_requests(Verb::Notification);
        slow.hold_requests(Verb::Renew);
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        drop(guard);
        assert!(timeout(TTL * 3 / 4, &mut waiting).await.is_err());
        slow.open(Verb::Notification);
        let granted = timeout(MOMENT, waiting).await.expect("before its next poll").unwrap();
        assert!(granted.remaining() > Some(TTL * 3 / 4), "{:?}", granted.remaining());
    });
}

#[test]
fn a_grant_pushed_during_a_request_is_used() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, slow) = slow_client(&store, &env);
        let guard = holder.mutex("x").acquire().await.unwrap();
        slow.hold_replies(Verb::Claim);
        let mut waiting = Box::pin(waiter.mutex("x").acquire());
        assert!(timeout(MOMENT, &mut waiting).await.is_err());
        drop(guard);
        sleep(MOMENT).await;
        slow.open(Verb::Claim);
        let granted = timeout(MOMENT, waiting).await.expect("before its next poll");
        assert!(granted.unwrap().check());
    });
}

/// Another process held the name when the engine last answered. Nobody knows whether it still holds the name after the
/// engine has stopped answering, so the error must not be "taken".
#[test]
fn a_wait_on_a_silent_engine_does_not_end_as_taken() {
    // Claims are sent at random times. So several limits are tried until one ends while a request has been in flight
    // for long and is not given up yet.
    let while_silent = |limit: Duration| {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (holder, ..) = new_client(&store, &env);
            let (waiter, slow) = slow_client(&store, &env);
            let _guard = holder.mutex("x").ttl(Duration::from_secs(60)).acquire().await.unwrap();
            let begin = tokio::time::Instant::now();
            let mut waiting = Box::pin(waiter.mutex("x").acquire_within(limit));
            assert!(timeout(MOMENT, &mut waiting).await.is_err());
            slow.hold_requests(Verb::Claim);
            let mut silent_since = None;
            let error = loop {
                if let Ok(result) = timeout(MOMENT, &mut waiting).await {
                    break result.unwrap_err();
                }
                silent_since =
                    silent_since.or_else(|| (slow.waiting(Verb::Claim) > 0).then(|| begin.elapsed()));
            };
            slow.open(Verb::Claim);
            let silent = limit - silent_since?;
            ((600..900).contains(&silent.as_millis())).then_some(error)
        })
    };
    let mut limits = (16..30).cycle().map(|tenths| while_silent(Duration::from_millis(tenths * 100)));
    let error = limits.find_map(|error| error).unwrap();
    assert!(error.is_unreachable(), "{error}");
    // If the engine answers, the error says that another client holds the name.
    let world = crate::World::new();
    let _guard = world.client().mutex("x").blocking().acquire().unwrap();
    let error = world.client().mutex("x").blocking().acquire_within(MOMENT * 50).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
}

/// I10: a later request of the release finds no hold. This does not tell whether an earlier request freed the hold or
/// its lease ran out.
#[test]
fn a_release_answered_after_the_lease_is_not_reported_as_freed() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        // The releases sent at 0, 50 and 150 ms are lost.
        (0..3).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let error = guard.release().await.unwrap_err();
        assert!(error.is_unknown(), "{error}");
    });
}

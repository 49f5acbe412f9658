//! The pace at which waiting requests ask the engine. On paused time.

use std::time::Duration;

use leasehold_core::{Pace, Request};
use leasehold_testkit::decorators::Verb;
use tokio::time;

use crate::cleanup::{new_client, new_store, paused_runtime};

/// How many claim requests a request sends in two seconds while another client holds the name.
fn questions_in_two_seconds(options: impl Fn(Request) -> Request) -> u64 {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, _, counting) = new_client(&store, &env);
        let _guard = holder.mutex("x").acquire().await.unwrap();
        let waiting = options(waiter.mutex("x")).acquire();
        assert!(time::timeout(Duration::from_millis(2001), waiting).await.is_err());
        counting.count(Verb::Claim).calls
    })
}

#[test]
fn a_waiter_asks_at_its_pace() {
    let fixed = Pace::fixed(Duration::from_millis(100)).without_jitter();
    assert_eq!(questions_in_two_seconds(|request| request.retry(fixed)), 21);
    let doubled = Pace::doubled(Duration::from_millis(100), Duration::from_millis(800)).without_jitter();
    // After 0, 100, 300, 700 and 1500 ms.
    assert_eq!(questions_in_two_seconds(|request| request.retry(doubled)), 5);
    let jittered = questions_in_two_seconds(|request| request.retry(Pace::fixed(Duration::from_millis(100))));
    assert!((22..=41).contains(&jittered), "{jittered} pauses of 50 to 100 ms");
}

#[test]
fn tries_are_made_at_their_pace() {
    let pace = Pace::fixed(Duration::from_millis(500)).without_jitter();
    assert_eq!(questions_in_two_seconds(|request| request.attempts(100).retry(pace)), 5);
}

#[test]
fn a_pace_does_not_delay_a_notification() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((holder, ..), (waiter, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = holder.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(waiter.mutex("x").retry(Pace::fixed(Duration::from_secs(60))).acquire());
        assert!(time::timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        drop(guard);
        let granted = time::timeout(Duration::from_millis(10), waiting).await;
        assert!(granted.expect("granted at once").unwrap().check());
    });
}

/// The requests of one client share a claim, which asks at the pace of the first of them.
#[test]
fn the_next_request_brings_its_own_pace() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, _, counting) = new_client(&store, &env);
        let _guard = holder.mutex("x").acquire().await.unwrap();
        let [slow, fast] = [1000, 100].map(|millis| {
            let pace = Pace::fixed(Duration::from_millis(millis)).without_jitter();
            Box::pin(waiter.mutex("x").retry(pace).acquire())
        });
        let (mut slow, mut fast) = (slow, fast);
        let both = async { tokio::join!(&mut slow, &mut fast) };
        assert!(time::timeout(Duration::from_millis(1), both).await.is_err());
        drop(slow);
        assert!(time::timeout(Duration::from_millis(2001), fast).await.is_err());
        // The pause that had begun at the slow pace still ends first.
        assert_eq!(counting.count(Verb::Claim).calls, 1 + 11);
    });
}

#[test]
fn an_impossible_pace_is_refused() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        for (pace, reason) in [
            (Pace::fixed(Duration::ZERO), "retry: a pause of 0s is too short"),
            (
                Pace::fixed(Duration::from_secs(6)),
                "retry: a pause of 6s is longer than the wait of at most 5s",
            ),
        ] {
            let error =
                locks.mutex("x").retry(pace).acquire_within(Duration::from_secs(5)).await.unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
        }
        assert_eq!(counting.count(Verb::Claim).calls, 0);
    });
}

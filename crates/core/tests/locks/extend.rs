//! Holds that are extended once, and the interval of renewals. On paused time.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_testkit::decorators::Verb;
use tokio::time;

use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_fixed_lease_is_extended_once() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, counting) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(SECOND).renew(false).acquire().await.unwrap();
        let before = guard.remaining().unwrap();
        guard.extend(SECOND / 10).await.unwrap();
        assert!(guard.remaining().unwrap() >= before, "never shorter");
        guard.extend(5 * SECOND).await.unwrap();
        assert!(guard.remaining().unwrap() >= 5 * SECOND);
        let sent = counting.count(Verb::Renew).calls;
        time::sleep(5 * SECOND).await;
        assert!(guard.check() && counting.count(Verb::Renew).calls == sent, "without renewals");
        assert_eq!(time::timeout(SECOND, guard.lost()).await.unwrap(), Loss::Lapsed);
        assert!(guard.extend(SECOND).await.unwrap_err().is_lost());
    });
}

#[test]
fn an_extended_hold_outlasts_an_outage_and_its_renewals_do_not_shorten_it() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(SECOND).acquire().await.unwrap();
        guard.extend(60 * SECOND).await.unwrap();
        time::sleep(10 * SECOND).await;
        assert!(guard.remaining().unwrap() >= 50 * SECOND, "renewals keep the extension");
        faulty.lose_session().await;
        time::sleep(49 * SECOND).await;
        assert!(guard.check());
        assert_eq!(time::timeout(3 * SECOND, guard.lost()).await.unwrap(), Loss::Lapsed);
    });
}

/// The next request of the process did not ask for the extension, so it gets a hold of its own.
#[test]
fn an_extended_hold_is_not_handed_over() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(9 * SECOND).acquire().await.unwrap();
        let mut waiting = Box::pin(locks.mutex("x").ttl(9 * SECOND).acquire());
        assert!(time::timeout(SECOND / 1000, &mut waiting).await.is_err());
        guard.extend(60 * SECOND).await.unwrap();
        let id = guard.id();
        drop(guard);
        let next = waiting.await.unwrap();
        assert_ne!(next.id(), id);
        assert!(next.remaining().unwrap() <= 9 * SECOND);
    });
}

#[test]
fn an_extension_ends_with_max_hold_and_has_an_upper_limit() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(SECOND).max_hold(2 * SECOND).acquire().await.unwrap();
        guard.extend(30 * SECOND).await.unwrap();
        assert!(guard.remaining().unwrap() <= 2 * SECOND);
        let error = guard.extend(25 * 3600 * SECOND).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("cannot extend by 25h: at most"), "{error}");
        assert_eq!(time::timeout(3 * SECOND, guard.lost()).await.unwrap(), Loss::MaxHold);
    });
}

#[test]
fn renewals_are_sent_at_the_chosen_interval() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        for (interval, renewals) in [(SECOND / 2, 20), (5 * SECOND, 2)] {
            let (locks, _, counting) = new_client(&store, &env);
            let request = locks.mutex(format!("{interval:?}")).ttl(10 * SECOND).renew_every(interval);
            let guard = request.acquire().await.unwrap();
            time::sleep(10 * SECOND + SECOND / 4).await;
            assert_eq!(counting.count(Verb::Renew).calls, renewals, "{interval:?}");
            assert!(guard.check());
        }
    });
}

#[test]
fn an_interval_out_of_range_is_refused() {
    let world = World::new();
    let locks = world.client();
    let request = locks.mutex("x").ttl(30 * SECOND);
    for (interval, is_accepted) in [
        (Duration::ZERO, false),
        (SECOND, false),
        (SECOND * 3 / 2, true),
        (15 * SECOND, true),
        (16 * SECOND, false),
    ] {
        let result = request.clone().renew_every(interval).blocking().try_acquire();
        assert_eq!(result.is_ok(), is_accepted, "{interval:?}");
        let Err(error) = result else { continue };
        let reason = "is out of range: with a ttl of 30s, 1500ms to 15s are allowed";
        assert!(error.is_misconfigured() && error.to_string().contains(reason), "{error}");
    }
    let long =
        |interval| locks.mutex("long").ttl(3600 * SECOND).renew_every(interval).blocking().try_acquire();
    assert!(long(20 * SECOND).is_ok(), "the default interval of a long lease");
    assert!(long(19 * SECOND).unwrap_err().is_misconfigured());
}

#[test]
fn the_deadline_is_the_remaining_time_from_now() {
    let world = World::new();
    let guard = world.client().mutex("x").ttl(60 * SECOND).renew(false).blocking().acquire().unwrap();
    let before = std::time::Instant::now();
    let (deadline, remaining) = (guard.deadline().unwrap(), guard.remaining().unwrap());
    assert!(deadline >= before + remaining && deadline <= before + 60 * SECOND, "{remaining:?}");
    let extended = guard.extend_blocking(120 * SECOND).unwrap().unwrap();
    assert!(extended >= before + 120 * SECOND);
}

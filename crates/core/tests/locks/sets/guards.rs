//! What the guards of several names report, and how they end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{ErrorKind, Loss, Previous};
use leasehold_testkit::decorators::{Fault, Verb};
use tokio::time::sleep;

use super::names_in_use;
use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
    eventually,
};

const TTL: Duration = Duration::from_secs(3);

#[test]
fn guards_are_found_by_name() {
    let world = World::new();
    let locks = world.client();
    let guards = locks.all().mutex("b").mutex("a").mutex("c").blocking().acquire().unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(guards.token(name), Some(guards.get(name).unwrap().token()));
        assert_eq!(guards.get(name).unwrap().name().as_str(), name);
        assert_eq!(guards.get(name).unwrap().previous(), Previous::Clean);
    }
    assert!(guards.token("d").is_none() && guards.get("").is_none());
    let tokens: Vec<u64> = guards.iter().map(|guard| guard.token().number).collect();
    assert!(tokens.windows(2).all(|pair| pair[0] != pair[1]), "each name has its own token: {tokens:?}");
}

/// By it a program tells its own holds and waits from those of others, which `show` has side by side.
#[test]
fn a_program_knows_its_own_claims() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let _guards = locks.all().mutex("a").mutex("b").blocking().acquire().unwrap();
    let mut waiting = Box::pin(other.mutex("a").acquire());
    assert!(leasehold_testkit::dropper::poll_once(waiting.as_mut()).is_none());
    eventually("it waits", || crate::waiter_count(&locks, "a") == 1);
    let view = pollster::block_on(locks.show("a")).unwrap();
    let (held, waits) = (&view.holders[0].id, &view.waiters[0].id);
    assert!(locks.has_claim(&view.name, held) && !locks.has_claim(&view.name, waits));
    assert!(other.has_claim(&view.name, waits) && !other.has_claim(&view.name, held));
    assert!(!locks.has_claim(&leasehold_core::Name::new("b").unwrap(), held));
}

#[test]
fn the_first_loss_is_the_loss_of_the_set() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guards = locks.all().mutex("a").mutex("b").mutex("c").ttl(TTL).acquire().await.unwrap();
        let (lost, called) = (guards.lost(), Arc::new(Mutex::new(Vec::new())));
        let calls = Arc::clone(&called);
        guards.on_lost(move |name, loss| calls.lock().unwrap().push((name.clone(), loss))).unwrap();
        assert!(guards.check() && guards.remaining().unwrap() <= TTL);
        let token = guards.token("b").unwrap().number;
        locks.break_hold("b", token, false).await.unwrap();
        let (name, loss) = lost.await;
        assert_eq!((name.as_str(), loss), ("b", Loss::Broken));
        assert!(!guards.check() && guards.get("a").unwrap().check(), "one lost hold ends the set");
        assert_eq!((guards.remaining(), guards.deadline().is_some()), (Some(Duration::ZERO), true));
        assert_eq!(guards.stop(Duration::from_secs(1)).unwrap().kill, Duration::ZERO);
        let error = guards.run(std::future::ready(())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost(Loss::Broken));
        assert!(error.to_string().contains("\"b\""), "{error}");
        eventually("called back", || !called.lock().unwrap().is_empty());
        let error = guards.release().await.unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("\"b\""), "{error}");
        let (other, ..) = new_client(&store, &env);
        other.all().mutex("a").mutex("b").mutex("c").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(called.lock().unwrap().len(), 1, "called once");
    });
}

/// I10: an unknown outcome of an earlier name does not hide the loss of a later one.
#[test]
fn a_loss_comes_before_an_unknown_outcome() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let broken_set = async || {
            let guards =
                locks.all().mutex("a").mutex("b").mutex("c").ttl(TTL).renew(false).acquire().await.unwrap();
            other.break_hold("b", guards.token("b").unwrap().number, false).await.unwrap();
            assert_eq!(guards.lost().await.0.as_str(), "b");
            guards
        };
        let guards = broken_set().await;
        (0..3).for_each(|_| faulty.next(Verb::Renew, Fault::RequestLost));
        let confirmed = guards.confirm().await.unwrap_err();
        faulty.clear_planned();
        drop(guards);
        sleep(TTL).await;
        let guards = broken_set().await;
        (0..1000).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let released = guards.release().await.unwrap_err();
        faulty.clear_planned();
        for error in [confirmed, released] {
            assert!(error.is_lost() && error.name().unwrap().as_str() == "b", "{error}");
        }
    });
}

#[test]
fn work_is_cancelled_at_the_first_loss() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guards = locks.all().mutex("a").mutex("b").ttl(TTL).acquire().await.unwrap();
        let token = guards.token("a").unwrap().number;
        assert_eq!(guards.run(sleep(TTL * 2)).await.ok(), Some(()), "renewed meanwhile");
        let break_and_wait = async {
            locks.break_hold("a", token, false).await.unwrap();
            std::future::pending::<()>().await;
        };
        assert_eq!(guards.run(break_and_wait).await.unwrap_err().kind(), ErrorKind::Lost(Loss::Broken));
    });
}

#[test]
fn max_hold_counts_from_the_last_grant() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let last = other.mutex("b").ttl(TTL).acquire().await.unwrap();
        let request = locks.all().mutex("a").mutex("b").ttl(TTL * 20).max_hold(TTL);
        let held_for = TTL * 5;
        let (guards, ()) = tokio::join!(request.acquire(), async move {
            sleep(held_for).await;
            drop(last);
        });
        let (guards, begin) = (guards.unwrap(), tokio::time::Instant::now());
        assert!(guards.check());
        // A pushed grant is short until its first renewal.
        guards.confirm().await.unwrap();
        let stop = guards.stop(TTL).unwrap();
        assert!(stop.term > TTL / 2, "{stop:?}: the grace is a third of max_hold at most");
        assert_eq!(guards.lost().await.1, Loss::MaxHold);
        let time = begin.elapsed();
        assert!((TTL..TTL + Duration::from_millis(100)).contains(&time), "{time:?}");
        drop(guards);
        other.all().mutex("a").mutex("b").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn split_guards_end_one_by_one() {
    let world = World::new();
    let locks = world.client();
    let guards = locks.all().mutex("a").mutex("b").mutex("c").blocking().acquire().unwrap();
    let mut split = guards.split();
    drop(split.remove(1));
    eventually("b is free", || names_in_use(&locks) == ["a", "c"]);
    split.pop().unwrap().release_blocking().unwrap();
    assert_eq!(names_in_use(&locks), ["a"]);
    drop(split);
    world.assert_no_leftovers();
}

#[test]
fn a_release_can_keep_all_names_taken() {
    let world = World::new();
    let locks = world.client();
    let guards = locks.all().mutex("a").mutex("b").blocking().acquire().unwrap();
    guards.confirm_blocking().unwrap();
    guards.release_at_least_blocking(crate::PATIENCE).unwrap();
    let other = world.client();
    for name in ["a", "b"] {
        assert!(other.mutex(name).blocking().try_acquire().unwrap_err().is_taken());
    }
}

#[test]
fn a_panic_abandons_every_name() {
    let world = World::new();
    let locks = world.client();
    let guards = locks.all().mutex("a").mutex("b").blocking().acquire().unwrap();
    let work = std::panic::AssertUnwindSafe(move || {
        let _guards = guards;
        panic!("the work failed");
    });
    assert!(std::panic::catch_unwind(work).is_err());
    let next = locks.all().mutex("a").mutex("b").blocking().acquire().unwrap();
    assert!(next.iter().all(|guard| guard.previous() == Previous::Abandoned), "{next:?}");
}

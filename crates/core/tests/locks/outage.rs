//! Requests that fail at once while the engine is away. On paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Env, Error, Keeper, Locks, Pace, WhenUnreachable, memory::MemoryEngine, memory::MemoryStore,
};
use leasehold_testkit::decorators::{Counting, Fault, Faulty, Verb};
use tokio::time;

use crate::{
    PATIENCE,
    cleanup::{new_client, new_store, paused_runtime},
};

/// A client whose requests fail at once while its engine is away.
fn failing_client(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Faulty>, Arc<Counting>) {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(store)))));
    let counting = Arc::new(Counting::new(Arc::clone(&faulty) as _));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let builder = Locks::builder(Arc::clone(&counting) as _).keeper(keeper).env(env.clone());
    (builder.when_unreachable(WhenUnreachable::Fail).build(), faulty, counting)
}

fn assert_away(error: &Error) {
    let message = error.to_string();
    assert!(error.is_unreachable() && message.contains("the engine is unreachable"), "{message}");
}

#[test]
fn a_request_fails_at_once_until_the_engine_answers_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = failing_client(&store, &env);
        drop(locks.mutex("x").acquire().await.unwrap());
        faulty.lose_session().await;
        let first = time::timeout(Duration::from_millis(1), locks.mutex("x").acquire()).await;
        assert_away(&first.expect("the first request that finds the outage").unwrap_err());
        time::sleep(Duration::from_secs(60)).await;
        let sent = counting.count(Verb::Claim).calls;
        for request in [locks.mutex("x").acquire(), locks.mutex("y").try_acquire()] {
            let error = time::timeout(Duration::ZERO, request).await.expect("at once").unwrap_err();
            assert_away(&error);
            assert!(error.to_string().contains("for 60.0 s"), "{error}");
        }
        assert_eq!(counting.count(Verb::Claim).calls, sent, "without a request");
        // The engine is asked for signs of life in the background, also while nobody wants a lock.
        faulty.heal();
        time::sleep(Duration::from_millis(201)).await;
        assert!(locks.mutex("x").acquire().await.unwrap().check());
    });
}

/// A locked row or a script that hangs: the engine gives signs of life.
#[test]
fn one_request_without_an_answer_is_no_outage() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = failing_client(&store, &env);
        (0..3).for_each(|_| faulty.next(Verb::Claim, Fault::RequestLost));
        assert!(locks.mutex("x").acquire().await.unwrap().check(), "the request is repeated");
        faulty.next(Verb::Claim, Fault::RequestLost);
        let mut repeated = Box::pin(locks.mutex("y").acquire());
        assert!(time::timeout(Duration::from_millis(1), &mut repeated).await.is_err());
        assert!(locks.mutex("z").acquire().await.unwrap().check(), "nor does it concern other requests");
    });
}

#[test]
fn the_engine_is_asked_five_times_a_second_for_a_sign_of_life() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = failing_client(&store, &env);
        faulty.lose_session().await;
        for _ in 0..1000 {
            assert_away(&locks.mutex("x").acquire().await.unwrap_err());
            time::sleep(Duration::from_millis(1)).await;
        }
        let probes = counting.count(Verb::Inspect).calls;
        assert!((4..=6).contains(&probes), "{probes} in a second");
    });
}

#[test]
fn requests_that_wait_fail_too_and_holds_stay() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (other, ..) = new_client(&store, &env);
        let (locks, faulty, counting) = failing_client(&store, &env);
        let _others = other.mutex("x").acquire().await.unwrap();
        let held = locks.mutex("y").acquire().await.unwrap();
        let waiting: Vec<_> = (0..50).map(|_| tokio::spawn(locks.mutex("x").acquire())).collect();
        let trying = tokio::spawn(locks.mutex("x").attempts(9).retry(Pace::fixed(PATIENCE)).acquire());
        time::sleep(Duration::from_millis(10)).await;
        let sent = counting.count(Verb::Claim).calls;
        faulty.lose_session().await;
        assert_away(&locks.mutex("z").acquire().await.unwrap_err());
        let ended = time::timeout(Duration::from_millis(1), async {
            for waiting in waiting.into_iter().chain([trying]) {
                assert_away(&waiting.await.unwrap().unwrap_err());
            }
        });
        ended.await.expect("all waiting requests learn of the outage at once");
        assert_eq!(counting.count(Verb::Claim).calls, sent + 1, "only the request that found the outage");
        assert!(held.check(), "its lease lasts");
    });
}

/// The default.
#[test]
fn a_request_waits_until_the_engine_is_back() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = new_client(&store, &env);
        drop(locks.mutex("x").acquire().await.unwrap());
        faulty.lose_session().await;
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        assert!(time::timeout(PATIENCE, &mut waiting).await.is_err());
        assert_eq!(counting.count(Verb::Inspect).calls, 0, "no sign of life is needed");
        faulty.heal();
        assert!(time::timeout(PATIENCE, waiting).await.unwrap().unwrap().check());
    });
}

//! Requests that fail at once while the engine is away. On paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, Error, Keeper, Locks, WhenUnreachable, memory::MemoryEngine, memory::MemoryStore};
use leasehold_testkit::decorators::{Counting, Faulty, Verb};
use tokio::time;

use crate::cleanup::{new_client, new_store, paused_runtime};

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
    assert!(error.is_unreachable() && message.contains("the engine is unreachable for"), "{message}");
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
        time::sleep(Duration::from_secs(3)).await;
        let sent = counting.count(Verb::Claim).calls;
        for request in [locks.mutex("x").acquire(), locks.mutex("y").try_acquire()] {
            let error = time::timeout(Duration::ZERO, request).await.expect("at once").unwrap_err();
            assert_away(&error);
            assert!(error.to_string().contains("for 3.0 s"), "{error}");
        }
        assert_eq!(counting.count(Verb::Claim).calls, sent, "without a request");
        // Until then the releases of the failed requests are sent again, whose answer would end the outage, too.
        time::sleep(Duration::from_secs(60)).await;
        faulty.heal();
        // This request still fails, and lets the engine be asked whether it is back.
        assert_away(&locks.mutex("x").acquire().await.unwrap_err());
        time::sleep(Duration::from_millis(1)).await;
        assert!(locks.mutex("x").acquire().await.unwrap().check());
    });
}

#[test]
fn the_engine_is_asked_rarely_whether_it_is_back() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = failing_client(&store, &env);
        faulty.lose_session().await;
        for _ in 0..1000 {
            assert_away(&locks.mutex("x").acquire().await.unwrap_err());
            time::sleep(Duration::from_millis(1)).await;
        }
        let probes = counting.count(Verb::Inspect).calls;
        assert!((4..=5).contains(&probes), "{probes} in a second");
    });
}

#[test]
fn requests_that_wait_fail_too_and_holds_stay() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (other, ..) = new_client(&store, &env);
        let (locks, faulty, _) = failing_client(&store, &env);
        let _others = other.mutex("x").acquire().await.unwrap();
        let held = locks.mutex("y").acquire().await.unwrap();
        let mut waiting = Box::pin(locks.mutex("x").acquire());
        assert!(time::timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        faulty.lose_session().await;
        let error = locks.mutex("z").acquire().await.unwrap_err();
        assert_away(&error);
        let ended = time::timeout(Duration::from_millis(250), waiting).await;
        assert_away(&ended.expect("the waiting request learns of the outage").unwrap_err());
        assert!(held.check(), "its lease lasts");
        // By default a request waits until the engine is back.
        let (patient, faulty, _) = new_client(&store, &env);
        drop(patient.mutex("p").acquire().await.unwrap());
        faulty.lose_session().await;
        assert!(time::timeout(Duration::from_secs(60), patient.mutex("p").acquire()).await.is_err());
    });
}

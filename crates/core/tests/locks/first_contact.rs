//! An engine that was never reached is given up in time; an engine that answers late is not. On paused time.

use std::{pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{
    Contact, Env, Error, Fault, Guard, Keeper, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::{Slow, Verb};
use tokio::time::{Instant, sleep, timeout};

use crate::cleanup::{new_client as new_other_client, new_store, paused_runtime};

/// The time for connecting. Shorter than the time limit of a request here.
const TIMEOUT: Duration = Duration::from_millis(800);
/// I12: how much later than its time limit a request may end.
const LATEST: Duration = Duration::from_millis(100);
const REFUSED: &str = "cannot connect to h:1: refused";

type Asking = Pin<Box<dyn Future<Output = Result<Guard, Error>>>>;

/// A client whose requests wait until the test lets them through, and the contact that its engine reports.
fn client(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Slow>, Contact) {
    let contact = Contact::default();
    let slow = Slow::new(Arc::new(MemoryEngine::new(Arc::clone(store)))).with_contact(contact.clone());
    let slow = Arc::new(slow);
    [Verb::Claim, Verb::Inspect].into_iter().for_each(|verb| slow.hold_requests(verb));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let builder = Locks::builder(Arc::clone(&slow) as _).keeper(keeper).env(env.clone());
    (builder.connect_timeout(TIMEOUT).build(), slow, contact)
}

fn asks(locks: &Locks) -> [Asking; 4] {
    let request = locks.mutex("x");
    [
        Box::pin(request.acquire()),
        Box::pin(request.acquire_within(TIMEOUT * 9)),
        Box::pin(request.try_acquire()),
        Box::pin(request.clone().attempts(9).acquire()),
    ]
}

#[test]
fn an_unreachable_engine_is_given_up_in_time() {
    for which in 0..4 {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (locks, slow, contact) = client(&store, &env);
            contact.record_failure(Fault::Retry, REFUSED);
            let begin = Instant::now();
            let [first, second] = [(); 2].map(|()| asks(&locks).into_iter().nth(which).unwrap());
            let ends = |asking: Asking| async move {
                let error = timeout(TIMEOUT * 20, asking).await.expect("it ends").unwrap_err();
                assert!(error.is_unreachable() && error.to_string().contains(REFUSED), "{error}");
                begin.elapsed()
            };
            // A later request has its own time limit, regardless of earlier attempts.
            let late = async {
                sleep(TIMEOUT / 2).await;
                ends(second).await
            };
            let (first, second) = tokio::join!(ends(first), late);
            assert!(first >= TIMEOUT && first <= TIMEOUT + LATEST, "request {which}: {first:?}");
            // A request for the same name waits behind the first.
            let last = TIMEOUT / 2 + TIMEOUT + LATEST;
            assert!(second >= TIMEOUT && second <= last, "request {which} after it: {second:?}");
            // A request that the engine sends after all, together with others, finds its claim released.
            slow.open(Verb::Claim);
            locks.close(TIMEOUT).await;
            drop(new_other_client(&store, &env).0.mutex("x").try_acquire().await.unwrap());
        });
    }
}

#[test]
fn a_slow_first_answer_is_no_outage() {
    for which in 0..4 {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (locks, slow, contact) = client(&store, &env);
            contact.record_failure(Fault::Retry, REFUSED);
            let mut asking = asks(&locks).into_iter().nth(which).unwrap();
            assert!(timeout(TIMEOUT / 2, &mut asking).await.is_err());
            contact.record_connected();
            if which >= 2 {
                // A try ends with its single request, successful or not.
                slow.open(Verb::Claim);
                drop(asking.await.unwrap());
                return;
            }
            assert!(timeout(TIMEOUT * 2, &mut asking).await.is_err(), "it is waited for");
            slow.open(Verb::Claim);
            drop(asking.await.unwrap());
        });
    }
}

#[test]
fn a_ping_ends_at_the_connect_timeout() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow, contact) = client(&store, &env);
        for connected in [false, true] {
            if connected {
                contact.record_connected();
            }
            let begin = Instant::now();
            let error = locks.ping().await.unwrap_err();
            assert!(error.is_unreachable() && error.to_string().contains("800ms"), "{error}");
            let took = begin.elapsed();
            assert!(took >= TIMEOUT && took <= TIMEOUT + LATEST, "{took:?}");
        }
        slow.open(Verb::Inspect);
        locks.ping().await.unwrap();
    });
}

//! Waits for the last names while the first are held: limits, losses on the way, dropped futures. Time is paused.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    All, Clock, Env, Event, GuardEnd, Instant as EngineInstant, Keeper, Locks, Loss, Observe, Verb,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::{decorators::Faulty, dropper::poll_once};
use tokio::time::{Instant, sleep};

use super::OneByOne;
use crate::cleanup::{new_client, new_store, paused_runtime};

const TTL: Duration = Duration::from_secs(3);
/// How far a limited wait may pass its limit (I12).
const PRECISION: Duration = Duration::from_millis(100);

/// Records the begins and the ends of the requests, the losses, and the guards that no user got.
#[derive(Default)]
struct Records(Mutex<Vec<String>>);

impl Observe for Records {
    fn event(&self, event: &Event<'_>) {
        let record = match event {
            Event::WaitBegun { name, .. } => format!("begun {name}"),
            Event::Granted { name, .. } => format!("granted {name}"),
            Event::Refused { name, .. } => format!("refused {name}"),
            Event::Cancelled { name, .. } => format!("cancelled {name}"),
            Event::Released { name, end: GuardEnd::Unused, .. } => format!("unused {name}"),
            Event::Lost { name, loss, .. } => format!("lost {name}: {loss:?}"),
            _ => return,
        };
        self.0.lock().unwrap().push(record);
    }
}

impl Records {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Two clients of a store: the one under test, with its records, and another.
fn clients(env: &Env, store: &Arc<MemoryStore>) -> (Locks, Arc<Records>, Locks) {
    let records = Arc::new(Records::default());
    let engine = OneByOne::new(Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(store))))));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let locks =
        Locks::builder(engine).keeper(keeper).env(env.clone()).observe(Arc::clone(&records) as _).build();
    (locks, records, new_client(store, env).0)
}

/// The events of a set that is granted.
const GRANTED: [&str; 6] = ["begun a", "begun b", "begun c", "granted a", "granted b", "granted c"];

fn abc(locks: &Locks) -> All {
    locks.all().mutex("c").mutex("b").mutex("a").ttl(TTL)
}

/// F74: one deadline for the sum of all waits.
#[test]
fn the_limit_is_for_all_names_together() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let limit = Duration::from_secs(10);
        let (first, _last) =
            (other.mutex("a").acquire().await.unwrap(), other.mutex("c").acquire().await.unwrap());
        let begin = Instant::now();
        let (result, ()) = tokio::join!(abc(&locks).acquire_within(limit), async move {
            sleep(limit / 2).await;
            drop(first);
        });
        let (error, time) = (result.unwrap_err(), begin.elapsed());
        assert!(error.is_timed_out() && error.to_string().contains("\"c\""), "{error}");
        assert!((limit..limit + PRECISION).contains(&time), "{time:?}");
        let ended = ["begun a", "begun b", "begun c", "cancelled a", "cancelled b", "refused c"];
        assert_eq!(records.take(), ended);
        drop(other.all().mutex("a").mutex("b").acquire_within(PRECISION).await.unwrap());
    });
}

#[test]
fn earlier_holds_are_renewed_while_the_last_is_awaited() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let last = other.mutex("c").acquire().await.unwrap();
        let (result, ()) = tokio::join!(abc(&locks).acquire(), async move {
            sleep(TTL * 10).await;
            drop(last);
        });
        let guards = result.unwrap();
        assert!(guards.check());
        assert_eq!(records.take(), GRANTED);
    });
}

/// F74: a set with a lapsed hold is never returned.
#[test]
fn a_hold_that_lapses_on_the_way_begins_the_request_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let last = other.mutex("c").acquire().await.unwrap();
        let (result, ()) = tokio::join!(abc(&locks).renew(false).acquire(), async move {
            sleep(TTL + TTL / 2).await;
            drop(last);
        });
        let guards = result.unwrap();
        assert!(guards.check(), "{guards:?}");
        assert_eq!(records.take(), GRANTED, "a hold that no user had has no event");
    });
}

#[test]
fn a_lapse_without_end_stops_at_the_limit() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let _last = other.mutex("c").acquire().await.unwrap();
        let begin = Instant::now();
        let error = abc(&locks).renew(false).acquire_within(TTL * 5).await.unwrap_err();
        let time = begin.elapsed();
        assert!(error.is_timed_out(), "{error}");
        assert!((TTL * 5..TTL * 5 + PRECISION).contains(&time), "{time:?}");
        let ended = ["begun a", "begun b", "begun c", "cancelled a", "cancelled b", "refused c"];
        assert_eq!(records.take(), ended);
        drop(other.all().mutex("a").mutex("b").acquire_within(PRECISION).await.unwrap());
    });
}

#[test]
fn a_hold_that_is_broken_on_the_way_begins_the_request_again() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let last = other.mutex("c").acquire().await.unwrap();
        let (result, ()) = tokio::join!(abc(&locks).acquire(), async {
            sleep(TTL).await;
            let token = other.show("b").await.unwrap().holders[0].token.unwrap();
            other.break_hold("b", token, false).await.unwrap();
            sleep(TTL).await;
            drop(last);
        });
        assert!(result.unwrap().check());
        assert_eq!(records.take(), GRANTED, "a hold that no user had has no event");
    });
}

/// I11: whichever name the request waits for, its dropped future leaves no hold and no queue entry.
#[test]
fn a_dropped_wait_leaves_nothing_of_any_name() {
    paused_runtime().block_on(async {
        for taken in ["a", "b", "c"] {
            let (store, env) = new_store();
            let (locks, _, other) = clients(&env, &store);
            let holder = other.mutex(taken).acquire().await.unwrap();
            let request = abc(&locks);
            let waits = tokio::time::timeout(TTL * 3, request.acquire()).await;
            assert!(waits.is_err(), "{taken} is taken");
            sleep(PRECISION).await;
            let views = other.list("").await.unwrap();
            assert_eq!(views.len(), 1, "{views:?}");
            assert!(views[0].waiters.is_empty(), "{views:?}");
            holder.release().await.unwrap();
        }
    });
}

#[test]
fn closing_ends_the_wait_and_frees_what_is_held() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, _, other) = clients(&env, &store);
        let _last = other.mutex("c").acquire().await.unwrap();
        let (result, open) = tokio::join!(abc(&locks).acquire(), async {
            sleep(TTL).await;
            locks.close(TTL).await
        });
        assert!(result.unwrap_err().is_closed());
        assert_eq!(open, 0, "no hold is left");
        drop(other.all().mutex("a").mutex("b").try_acquire().await.unwrap());
    });
}

/// The holds of a set whose user is slow to take them are kept; a set that nobody takes is released.
#[test]
fn a_set_that_is_granted_and_never_taken_is_released() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, records, other) = clients(&env, &store);
        let mut acquire = Box::pin(abc(&locks).acquire());
        assert!(poll_once(acquire.as_mut()).is_none());
        sleep(TTL * 3).await;
        assert!(other.mutex("a").try_acquire().await.unwrap_err().is_taken(), "it is granted");
        drop(acquire);
        sleep(PRECISION).await;
        drop(other.all().mutex("a").mutex("b").mutex("c").try_acquire().await.unwrap());
        let records = records.take();
        assert_eq!(records[..6], GRANTED);
        assert_eq!(records[6..], ["unused a", "unused b", "unused c"], "and not {:?}", Loss::Lapsed);
    });
}

/// A clock that two slow answers to claims set forward, each by two thirds of the ttl.
struct Jumping {
    inner: Arc<dyn Clock>,
    answers: AtomicU32,
}

impl Clock for Jumping {
    fn now(&self) -> EngineInstant {
        self.inner.now().after(TTL * 2 / 3 * self.answers.load(Ordering::SeqCst).min(2))
    }
}

impl Observe for Jumping {
    fn event(&self, event: &Event<'_>) {
        if matches!(event, Event::Answered { verb: Verb::Claim, .. }) {
            self.answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A try ends, whatever happens: it does not begin again.
#[test]
fn a_hold_that_lapses_during_a_try_is_an_error() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let clock = Arc::new(Jumping { inner: Arc::clone(&env.clock), answers: AtomicU32::new(0) });
        let engine = OneByOne::new(Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&store))))));
        let locks = Locks::builder(engine)
            .keeper(Keeper::on(tokio::runtime::Handle::current()))
            .env(Env { clock: Arc::clone(&clock) as _, ..env.clone() })
            .observe(Arc::clone(&clock) as _)
            .build();
        let set = || locks.all().mutex("a").mutex("b").ttl(TTL);
        let error = set().try_acquire().await.unwrap_err();
        assert!(error.is_lost() && error.name().unwrap().as_str() == "a", "{error}");
        // The next of several tries may succeed.
        clock.answers.store(0, Ordering::SeqCst);
        drop(set().attempts(2).acquire().await.unwrap());
        sleep(PRECISION).await;
        drop(new_client(&store, &env).0.all().mutex("a").mutex("b").try_acquire().await.unwrap());
    });
}

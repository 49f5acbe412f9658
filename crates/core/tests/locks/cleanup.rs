//! What remains on the engine after lost requests and notifications, and for how long. On paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Clock, Env, Instant, Keeper, Lineage, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::{Counting, Fault, Faulty, Verb};
use tokio::{runtime::Runtime, time};

const TTL: Duration = Duration::from_secs(1);

/// The clock of a paused runtime.
struct PausedClock(time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000).after(time::Instant::now() - self.0)
    }
}

/// A client of `store` whose connection may be faulty.
pub(crate) fn new_client(store: &Arc<MemoryStore>, env: &Env) -> (Locks, Arc<Faulty>, Arc<Counting>) {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(store)))));
    let counting = Arc::new(Counting::new(Arc::clone(&faulty) as _));
    let keeper = Keeper::on(tokio::runtime::Handle::current());
    let locks = Locks::builder(Arc::clone(&counting) as _).keeper(keeper).env(env.clone()).build();
    (locks, faulty, counting)
}

/// A runtime whose time passes only while all its tasks wait.
pub(crate) fn paused_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A store on paused time, and the environment for its clients.
pub(crate) fn new_store() -> (Arc<MemoryStore>, Env) {
    let env = Env { clock: Arc::new(PausedClock(time::Instant::now())), ..Env::system() };
    (MemoryStore::new(Lineage::new(7), Arc::clone(&env.clock)), env)
}

#[test]
fn cleanup_of_a_queue_entry_lasts_until_the_entry_ends() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, faulty, _) = new_client(&store, &env);
        let _guard = holder.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(waiter.mutex("x").ttl(TTL).acquire());
        assert!(time::timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        // The release is sent again for 3.6 s: longer than the lease and the request life, shorter than the lease of
        // the queue entry.
        (0..8).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        drop(waiting);
        time::sleep(Duration::from_secs(6)).await;
        assert!(
            holder.show("x").await.unwrap().waiters.is_empty(),
            "the queue entry of the dropped wait is gone"
        );
    });
}

#[test]
fn a_hold_broken_before_its_grant_was_known_does_not_block_its_claim() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, faulty, _) = new_client(&store, &env);
        let guard = holder.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(waiter.mutex("x").acquire());
        assert!(time::timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        faulty.next(Verb::Notification, Fault::RequestLost);
        drop(guard);
        time::sleep(Duration::from_millis(1)).await;
        let token = holder.show("x").await.unwrap().holders[0].token.unwrap();
        holder.break_hold("x", token, false).await.unwrap();
        // Notifications arrive again: the claim asks, and learns that it is gone.
        faulty.heal();
        let granted = time::timeout(Duration::from_millis(500), waiting).await;
        assert!(granted.expect("not before the broken hold has lapsed").unwrap().check());
    });
}

#[test]
fn a_gone_claim_is_still_released() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (holder, ..) = new_client(&store, &env);
        let (waiter, _, counting) = new_client(&store, &env);
        let _guard = holder.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(waiter.mutex("x").acquire());
        assert!(time::timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        store.forget_all();
        let _granted = waiting.await.unwrap();
        // The lost claim was released, too: a late request of it may still arrive after its tombstone has expired.
        assert_eq!(counting.count(Verb::Release).items, 1);
    });
}

#[test]
fn an_abandoned_release_sends_nothing_more() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        faulty.lose_session().await;
        assert!(guard.release().await.unwrap_err().is_unknown());
        time::sleep(Duration::from_secs(60)).await;
        let sent = counting.count(Verb::Release);
        assert_eq!(sent.calls, sent.items, "each release had something to release");
    });
}

#[test]
fn a_release_without_an_answer_ends_with_the_lease() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        (0..8).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let began = time::Instant::now();
        assert!(guard.release().await.unwrap_err().is_unknown());
        let waited = began.elapsed();
        assert!(waited <= TTL * 2, "the caller waited for {waited:?}");
        let sent = counting.count(Verb::Release).calls;
        time::sleep(Duration::from_secs(60)).await;
        assert!(counting.count(Verb::Release).calls > sent, "the cleanup went on");
    });
}

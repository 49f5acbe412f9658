//! The minimum hold time: waiters get the name in time, also on an engine that cannot block a name after a release. On
//! paused time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Engine, EngineError, Env, Hold, How, Keeper, Locks, Loss, Name,
    Notification, Owner, Profile, Release, Released, Renewed,
    memory::{MemoryEngine, MemoryStore},
};
use tokio::time::{self, Instant};

use crate::{
    CLEAN_UP,
    cleanup::{new_client, new_store, paused_runtime},
    inspect_macro::inspects_by,
};

/// Far shorter than [`MIN_HOLD`]: without renewal, a hold lapses long before its minimum hold time has passed.
const TTL: Duration = Duration::from_millis(300);
const MIN_HOLD: Duration = Duration::from_millis(1000);
const MOMENT: Duration = Duration::from_millis(20);

/// The memory engine, with holds that end with their process, as those of engines with sessions do.
struct SessionEngine {
    inner: MemoryEngine,
    profile: Profile,
}

impl Engine for SessionEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.inner.claim(claim, how)
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.inner.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.inner.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        assert!(
            releases.iter().all(|release| release.min_hold.is_none()),
            "the engine has no minimum hold: {releases:?}"
        );
        self.inner.release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.inner.notifications()
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.inner.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.inner.conversions()
    }
}

inspects_by!(SessionEngine, |this| this.inner);

/// Two clients, each with its own [`SessionEngine`]: the profile of one says that calls never wait (`inline`), the
/// profile of the other does not.
fn session_clients(store: &Arc<MemoryStore>, env: &Env) -> [Locks; 2] {
    [true, false].map(|inline| {
        let inner = MemoryEngine::new(Arc::clone(store));
        let mut profile = inner.profile().clone();
        (profile.inline, profile.supports_min_hold) = (inline, false);
        let keeper = Keeper::on(tokio::runtime::Handle::current());
        Locks::builder(Arc::new(SessionEngine { inner, profile })).keeper(keeper).env(env.clone()).build()
    })
}

/// Runs `test` on each of the [`session_clients`], with a second client that stands for another process.
fn for_each_client(test: impl AsyncFn(Locks, Locks, Arc<MemoryStore>)) {
    for index in 0..2 {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (other, ..) = new_client(&store, &env);
            let locks = session_clients(&store, &env)[index].clone();
            test(locks, other.clone(), store).await;
            time::sleep(CLEAN_UP).await;
            assert!(other.list("").await.unwrap().is_empty(), "left behind");
        });
    }
}

async fn is_taken(other: &Locks) -> bool {
    other.mutex("x").try_acquire().await.is_err_and(|error| error.is_taken())
}

#[test]
fn the_process_holds_until_the_minimum_is_over() {
    for_each_client(async |locks, other, _| {
        let begin = Instant::now();
        let guard = locks.mutex("x").ttl(TTL).owner("me").acquire().await.unwrap();
        let release = tokio::spawn(guard.release_at_least(MIN_HOLD));
        while begin.elapsed() < MIN_HOLD - MOMENT {
            assert!(is_taken(&other).await, "after {:?}", begin.elapsed());
            time::sleep(MOMENT).await;
        }
        let view = locks.show("x").await.unwrap();
        assert_eq!(view.holders[0].owner, "me");
        release.await.unwrap().unwrap();
        assert!(begin.elapsed() >= MIN_HOLD, "it says so when it is done");
        assert!(begin.elapsed() < MIN_HOLD + MOMENT, "after {:?}", begin.elapsed());
        assert!(!is_taken(&other).await);
    });
}

#[test]
fn neither_a_fixed_lease_nor_max_hold_shortens_the_minimum() {
    for_each_client(async |locks, _, _| {
        let begin = Instant::now();
        let guard = locks.mutex("x").ttl(TTL).renew(false).max_hold(TTL / 2).acquire().await.unwrap();
        guard.release_at_least(MIN_HOLD).await.unwrap();
        assert!(begin.elapsed() >= MIN_HOLD, "after {:?}", begin.elapsed());
    });
}

#[test]
fn a_minimum_that_has_passed_releases_at_once() {
    for_each_client(async |locks, other, _| {
        let guard = locks.mutex("x").acquire().await.unwrap();
        time::sleep(MOMENT).await;
        let begin = Instant::now();
        guard.release_at_least(MOMENT).await.unwrap();
        assert!(begin.elapsed() < MOMENT, "after {:?}", begin.elapsed());
        assert!(!is_taken(&other).await);
    });
}

#[test]
fn the_minimum_lasts_when_the_release_future_is_dropped() {
    for_each_client(async |locks, other, _| {
        let begin = Instant::now();
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        drop(guard.release_at_least(MIN_HOLD));
        drop(locks);
        drop(other.mutex("x").acquire().await.unwrap());
        assert!(begin.elapsed() >= MIN_HOLD, "after {:?}", begin.elapsed());
    });
}

#[test]
fn the_owner_cannot_acquire_during_the_minimum() {
    let me: Owner = "me".parse().unwrap();
    for_each_client(async |locks, _, _| {
        let begin = Instant::now();
        let request = || locks.mutex("x").owner(me.clone());
        let guard = request().acquire().await.unwrap();
        let again = request().acquire().await.unwrap();
        let release = guard.release_at_least(MIN_HOLD);
        again.release().await.unwrap();
        assert!(request().try_acquire().await.unwrap_err().is_taken());
        drop(request().acquire().await.unwrap());
        assert!(begin.elapsed() >= MIN_HOLD, "after {:?}", begin.elapsed());
        release.await.unwrap();
    });
}

#[test]
fn a_loss_during_the_minimum_is_reported() {
    for_each_client(async |locks, other, store| {
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        let release = guard.release_at_least(Duration::from_secs(3600));
        store.forget_all();
        let error = release.await.unwrap_err();
        assert!(error.is_lost() && error.to_string().contains(&Loss::Gone.to_string()), "{error}");
        time::sleep(CLEAN_UP).await;
        assert!(!is_taken(&other).await);
    });
}

#[test]
fn closing_ends_the_minimum() {
    for_each_client(async |locks, other, _| {
        let guard = locks.mutex("x").acquire().await.unwrap();
        let release = guard.release_at_least(Duration::from_secs(3600));
        assert_eq!(locks.close(MOMENT).await, 1);
        assert!(release.await.unwrap_err().is_lost());
        time::sleep(CLEAN_UP).await;
        assert!(!is_taken(&other).await);
    });
}

#[test]
fn each_waiter_starts_after_the_minimum_of_the_one_before() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let clients = [new_client(&store, &env).0, new_client(&store, &env).0];
        let begin = Instant::now();
        let mut waits = tokio::task::JoinSet::new();
        for index in 0..5 {
            let locks = clients[index % 2].clone();
            waits.spawn(async move {
                let guard = locks.mutex("x").acquire().await.unwrap();
                let start = begin.elapsed();
                guard.release_at_least(MIN_HOLD).await.unwrap();
                start
            });
        }
        let mut starts = waits.join_all().await;
        starts.sort();
        for (number, start) in (0..).zip(starts) {
            assert!(
                start >= MIN_HOLD * number && start < MIN_HOLD * number + MOMENT,
                "waiter {number} started after {start:?}"
            );
        }
        time::sleep(MIN_HOLD + CLEAN_UP).await;
    });
}

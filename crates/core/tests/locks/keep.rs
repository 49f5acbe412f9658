//! Keeping a name taken after the work, on an engine that cannot do it once the name is released.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{
    Answer, BoxFuture, Broken, Claim, Engine, EngineError, Guarantee, Hold, How, Inspect, Locks, Loss, Name,
    News, Owner, Profile, Release, Released, Renewed, View, memory::MemoryEngine,
};

use crate::{World, eventually};

/// Short, so that what is not renewed lapses in a test.
const TTL: Duration = Duration::from_millis(300);
const KEPT: Duration = Duration::from_millis(1000);

/// The memory engine, whose holds end with their process, as those of sessions do.
struct Sessions {
    inner: MemoryEngine,
    profile: Profile,
}

impl Engine for Sessions {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.inner.claim(claim, how)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.inner.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        assert!(releases.iter().all(|release| release.keep.is_none()), "it cannot: {releases:?}");
        self.inner.release(releases)
    }

    fn news(&self) -> BoxFuture<'_, Vec<News>> {
        self.inner.news()
    }
}

impl Inspect for Sessions {
    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.inner.guarantee()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        self.inner.list(prefix)
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        self.inner.show(name)
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        self.inner.break_hold(name, token, force)
    }
}

impl World {
    /// Two of its kind: on one the calls of an engine never wait, on the other they might.
    fn sessions(&self) -> [Locks; 2] {
        [true, false].map(|inline| {
            let inner = MemoryEngine::new(Arc::clone(&self.store));
            let mut profile = inner.profile().clone();
            (profile.inline, profile.can_keep) = (inline, false);
            Locks::builder(Arc::new(Sessions { inner, profile })).build()
        })
    }

    fn is_taken(&self) -> bool {
        self.client().mutex("x").blocking().try_acquire().is_err_and(|error| error.is_taken())
    }
}

#[test]
fn the_process_goes_on_holding_until_then() {
    let world = World::new();
    for locks in world.sessions() {
        let begin = Instant::now();
        let guard = locks.mutex("x").ttl(TTL).owner("me").blocking().acquire().unwrap();
        let release = std::thread::spawn(move || pollster::block_on(guard.release_at_least(KEPT)));
        while begin.elapsed() < KEPT - Duration::from_millis(100) {
            assert!(world.is_taken(), "after {:?}", begin.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        let view = pollster::block_on(locks.show("x")).unwrap();
        assert_eq!(view.holders[0].owner, "me");
        release.join().unwrap().unwrap();
        assert!(begin.elapsed() >= KEPT, "it says so when it is done");
        assert!(!world.is_taken());
        world.assert_at_rest();
    }
}

#[test]
fn neither_a_fixed_lease_nor_max_hold_ends_it_sooner() {
    let world = World::new();
    for locks in world.sessions() {
        let begin = Instant::now();
        let request = locks.mutex("x").ttl(TTL).renew(false).max_hold(TTL / 2);
        let guard = request.blocking().acquire().unwrap();
        pollster::block_on(guard.release_at_least(KEPT)).unwrap();
        assert!(begin.elapsed() >= KEPT, "after {:?}", begin.elapsed());
        world.assert_at_rest();
    }
}

#[test]
fn it_is_over_at_once_when_the_time_has_passed() {
    let world = World::new();
    for locks in world.sessions() {
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        pollster::block_on(guard.release_at_least(Duration::from_millis(20))).unwrap();
        assert!(!world.is_taken());
    }
}

#[test]
fn it_goes_on_though_nobody_waits_for_it() {
    let world = World::new();
    for locks in world.sessions() {
        let begin = Instant::now();
        let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
        drop(guard.release_at_least(KEPT));
        drop(locks);
        drop(world.client().mutex("x").blocking().acquire().unwrap());
        assert!(begin.elapsed() >= KEPT, "after {:?}", begin.elapsed());
        world.assert_at_rest();
    }
}

#[test]
fn nobody_takes_it_again_meanwhile_also_not_its_owner() {
    let world = World::new();
    let me: Owner = "me".parse().unwrap();
    for locks in world.sessions() {
        let begin = Instant::now();
        let request = || locks.mutex("x").owner(me.clone());
        let guard = request().blocking().acquire().unwrap();
        let again = request().blocking().acquire().unwrap();
        let kept = guard.release_at_least(KEPT);
        again.release_blocking().unwrap();
        assert!(request().blocking().try_acquire().unwrap_err().is_taken());
        drop(request().blocking().acquire().unwrap());
        assert!(begin.elapsed() >= KEPT, "after {:?}", begin.elapsed());
        pollster::block_on(kept).unwrap();
    }
}

#[test]
fn a_loss_meanwhile_is_told() {
    let world = World::new();
    for locks in world.sessions() {
        let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
        let kept = guard.release_at_least(Duration::from_secs(3600));
        world.store.forget_all();
        let error = pollster::block_on(kept).unwrap_err();
        assert!(error.is_lost() && error.to_string().contains(&Loss::Gone.to_string()), "{error}");
        eventually("it is free", || !world.is_taken());
    }
}

#[test]
fn closing_ends_it() {
    let world = World::new();
    for locks in world.sessions() {
        let guard = locks.mutex("x").blocking().acquire().unwrap();
        let kept = guard.release_at_least(Duration::from_secs(3600));
        assert_eq!(pollster::block_on(locks.close(Duration::from_millis(50))), 1);
        assert!(pollster::block_on(kept).unwrap_err().is_lost());
        eventually("it is free", || !world.is_taken());
        world.assert_at_rest();
    }
}

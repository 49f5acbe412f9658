//! Tests of doubt that arrives together with a grant.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Engine, EngineError, Hold, How, Inspect, Locks, Mailbox,
    Name, Notification, Owner, Profile, Release, Released, Renewed, memory::MemoryEngine,
};
use tokio::sync::Notify;

use crate::{World, eventually, inspect_macro::inspects_by};

/// An engine that puts each grant in doubt before it answers the claim, and renews only when allowed.
struct DoubtingEngine {
    inner: MemoryEngine,
    profile: Profile,
    mailbox: Mailbox,
    /// Whether the keeper has read notifications, and has not asked for more yet.
    read: AtomicBool,
    /// Notified when the keeper has handled a doubt.
    doubt_handled: Notify,
    /// Whether renewals are answered.
    answers_renewals: AtomicBool,
    /// Whether releases are answered with an unknown outcome.
    loses_releases: AtomicBool,
    /// Notified when a release was answered with an unknown outcome.
    release_lost: Notify,
}

impl Engine for DoubtingEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let answer = self.inner.claim(claim, how).await;
            self.mailbox.push(Notification::Doubt);
            self.doubt_handled.notified().await;
            answer
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.inner.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            if self.answers_renewals.load(SeqCst) {
                return self.inner.renew(holds).await;
            }
            let busy = || EngineError::new(leasehold_core::Fault::Retry, "busy");
            holds.iter().map(|_| Renewed::Unknown(busy())).collect()
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            if self.loses_releases.load(SeqCst) {
                self.release_lost.notify_one();
                let lost = || EngineError::new(leasehold_core::Fault::Unknown, "the connection broke");
                return releases.iter().map(|_| Released::Unknown(lost())).collect();
            }
            self.inner.release(releases).await
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async {
            // The caller asks for more, so it has handled the notifications that it read before.
            if self.read.swap(false, SeqCst) {
                self.doubt_handled.notify_one();
            }
            let notification = self.mailbox.read().await;
            self.read.store(true, SeqCst);
            notification
        })
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.inner.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.inner.conversions()
    }
}

inspects_by!(DoubtingEngine, |this| this.inner);

/// An engine that puts its own grants in doubt, and a client of it.
fn new_doubting_client(world: &World) -> (Arc<DoubtingEngine>, Locks) {
    let inner = MemoryEngine::new(Arc::clone(&world.store));
    let mut profile = inner.profile().clone();
    profile.inline = false;
    let (mailbox, read, doubt_handled, answers_renewals, loses_releases, release_lost) = Default::default();
    let engine = Arc::new(DoubtingEngine {
        inner,
        profile,
        mailbox,
        read,
        doubt_handled,
        answers_renewals,
        loses_releases,
        release_lost,
    });
    let locks = Locks::builder(Arc::clone(&engine) as Arc<dyn Engine>).build();
    (engine, locks)
}

#[test]
fn a_grant_requested_before_a_doubt_is_in_doubt() {
    let (engine, locks) = new_doubting_client(&World::new());
    for (name, waits) in [("a", true), ("b", false)] {
        let request = locks.mutex(name).blocking();
        let guard = if waits { request.acquire() } else { request.try_acquire() }.unwrap();
        assert!(!guard.check(), "not lost, but not valid");
        engine.answers_renewals.store(true, SeqCst);
        eventually("the engine confirms it", || guard.check());
        engine.answers_renewals.store(false, SeqCst);
    }
}

/// The engine is asked at once, and most holds in doubt turn out to be valid. Until the answer arrives work continues,
/// as under `Guard::run`, but not past the end of the lease.
#[test]
fn a_doubt_does_not_stop_work_earlier() {
    let (engine, locks) = new_doubting_client(&World::new());
    let ttl = Duration::from_secs(3600);
    let guard = locks.mutex("a").ttl(ttl).blocking().acquire().unwrap();
    let grace = Duration::from_secs(5);
    let stop = guard.stop(grace).unwrap();
    assert!(!guard.check() && guard.remaining() == Some(Duration::ZERO), "it is in doubt");
    assert!(stop.kill > ttl / 2 && stop.kill < ttl, "{stop:?}");
    assert_eq!(stop.kill - stop.term, grace);
    let name = Name::new("a").unwrap();
    let broken = engine.inner.break_hold(&name, guard.token().number, true);
    assert_eq!(pollster::block_on(broken).unwrap(), Broken::Done);
    engine.answers_renewals.store(true, SeqCst);
    let _ = guard.confirm_blocking();
    let stop = guard.stop(grace).unwrap();
    assert!(stop.term.is_zero() && stop.kill.is_zero(), "it is lost: {stop:?}");
}

/// I10: the engine is not asked when this guard is released, and the hold may have ended as far as the process knows.
#[test]
fn a_shared_hold_in_doubt_is_released_as_unknown() {
    let world = World::new();
    let (engine, locks) = new_doubting_client(&world);
    let me = Owner::new("me");
    let guard = || locks.mutex("a").owner(me.clone()).blocking().acquire().unwrap();
    let (first, second, last) = (guard(), guard(), guard());
    assert!(second.release_blocking().unwrap_err().is_unknown());
    engine.answers_renewals.store(true, SeqCst);
    eventually("the engine confirms it", || first.check());
    first.release_blocking().expect("it was held until now");
    engine.answers_renewals.store(false, SeqCst);
    engine.mailbox.push(Notification::Doubt);
    eventually("it is in doubt again", || !last.check());
    last.release_blocking().expect("the engine is asked, and confirms it");
    world.assert_no_leftovers();
}

/// I10. The first request of a release was lost, and the second finds nothing. A hold that was or became in doubt
/// meanwhile may have ended by itself, and another client may have held the name since.
#[test]
fn a_release_sent_twice_during_a_doubt_is_unknown() {
    for doubt_comes_first in [true, false] {
        let (engine, locks) = new_doubting_client(&World::new());
        engine.answers_renewals.store(true, SeqCst);
        let guard = locks.mutex("a").blocking().acquire().unwrap();
        eventually("the engine confirms it", || guard.check());
        engine.answers_renewals.store(false, SeqCst);
        engine.loses_releases.store(true, SeqCst);
        let doubt = || {
            engine.mailbox.push(Notification::Doubt);
            // When the engine's notifications are read again, the doubt has been handled.
            pollster::block_on(engine.doubt_handled.notified());
        };
        if doubt_comes_first {
            doubt();
            assert!(!guard.check());
        }
        let token = guard.token().number;
        let released = std::thread::spawn(move || guard.release_blocking());
        pollster::block_on(engine.release_lost.notified());
        if !doubt_comes_first {
            doubt();
        }
        let name = Name::new("a").unwrap();
        let broken = engine.inner.break_hold(&name, token, true);
        assert_eq!(pollster::block_on(broken).unwrap(), Broken::Done);
        engine.loses_releases.store(false, SeqCst);
        let error = released.join().unwrap().unwrap_err();
        assert!(error.is_unknown(), "{doubt_comes_first}: {error}");
    }
}

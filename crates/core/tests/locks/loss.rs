//! Tests of lost holds: why they are lost, when the guard learns of it, and what the errors say.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{ErrorKind, Event, Keeper, Locks, Loss, Observe, Previous};
use leasehold_testkit::decorators::{Fault, Verb};

use tokio::time::Instant;

use crate::{
    PATIENCE, World,
    cleanup::{new_client, new_store, paused_runtime},
    handover::world_on_stopped_clock,
};

const TTL: Duration = Duration::from_millis(150);

#[test]
fn a_fixed_lease_ends_before_another_can_be_granted() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = std::sync::Arc::new(a.mutex("x").ttl(TTL).renew(false).blocking().acquire().unwrap());
    let (request, old) = (b.mutex("x"), std::sync::Arc::clone(&guard));
    let other = std::thread::spawn(move || {
        let next = request.blocking().acquire().unwrap();
        assert!(!old.check(), "another claim was granted while the old hold was valid");
        next
    });
    assert_eq!(pollster::block_on(guard.lost()), Loss::Lapsed);
    assert!(!guard.check() && guard.remaining() == Some(Duration::ZERO));
    let next = other.join().unwrap();
    let guard = std::sync::Arc::into_inner(guard).unwrap();
    assert_eq!(next.previous(), Previous::Lapsed);
    let error = guard.release_blocking().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(next.check(), "the late release ended no other hold");
}

#[test]
fn run_cancels_the_work_when_the_hold_is_lost() {
    let world = World::new();
    let guard = world.client().mutex("x").ttl(TTL).renew(false).blocking().acquire().unwrap();
    let error = pollster::block_on(guard.run(std::future::pending::<()>())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Loss::Lapsed));
    let after = pollster::block_on(guard.run(std::future::ready(7)));
    assert!(after.unwrap_err().is_lost(), "nothing runs under a lost hold");
}

/// R6. A bug that seed 9109624 of the simulation found: the hold was renewed until the user dropped a guard whose loss
/// had been reported long before.
#[test]
fn a_guard_with_a_reported_loss_does_not_delay_the_release() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let reads = || locks.rw("x").read().ttl(TTL);
        let ended = reads().max_hold(TTL).acquire().await.unwrap();
        let lasts = reads().acquire().await.unwrap();
        assert_eq!(ended.lost().await, Loss::MaxHold);
        assert!(lasts.check());
        lasts.release().await.unwrap();
        let (other, ..) = new_client(&store, &env);
        let next = other.rw("x").write().try_acquire().await.unwrap();
        assert_eq!(next.previous(), Previous::Clean);
        drop(ended);
        assert!(next.check(), "a guard of a lost hold frees nothing");
    });
}

#[test]
fn max_hold_ends_a_hold_that_is_renewed() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).max_hold(TTL * 3 / 2).acquire().await.unwrap();
        let from = Instant::now();
        assert_eq!(guard.lost().await, Loss::MaxHold);
        let held = from.elapsed();
        assert!(held >= TTL && !guard.check(), "held for {held:?}");
        let (other, ..) = new_client(&store, &env);
        let next = other.mutex("x").acquire_within(TTL * 2).await.unwrap();
        assert_eq!(
            next.previous(),
            Previous::Lapsed,
            "its renewal stopped although the guard was not dropped"
        );
        drop(guard);
        assert!(next.check());
    });
}

#[test]
fn a_forgotten_hold_is_noticed_at_the_next_renewal() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        store.forget_all();
        let from = Instant::now();
        assert_eq!(guard.lost().await, Loss::Gone);
        assert!(from.elapsed() < TTL / 2, "noticed after {:?}", from.elapsed());
        assert!(guard.release().await.unwrap_err().is_lost());
    });
}

/// R13: no notification tells the holder of this end, and a third of its lease is three minutes.
#[test]
fn the_holder_of_a_long_lease_is_told_within_twenty_seconds() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(Duration::from_secs(600)).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(guard.check());
        store.forget_all();
        let from = Instant::now();
        assert_eq!(guard.lost().await, Loss::Gone);
        assert!(from.elapsed() <= Duration::from_secs(21), "told after {:?}", from.elapsed());
    });
}

#[test]
fn a_break_notifies_the_holder_before_the_next_grant() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let guard = a.mutex("x").blocking().acquire().unwrap();
    let token = guard.token().number;
    let broken = |token, force| pollster::block_on(b.break_hold("x", token, force)).unwrap();
    assert_eq!(broken(token + 1000, false), leasehold_core::Broken::NotHeld);
    assert!(guard.check());
    assert_eq!(broken(token, false), leasehold_core::Broken::Done);
    assert_eq!(pollster::block_on(guard.lost()), Loss::Broken);
    assert!(b.mutex("x").blocking().try_acquire().unwrap_err().is_taken(), "until the holder releases");
    drop(guard);
    assert_eq!(b.mutex("x").blocking().try_acquire().unwrap().previous(), Previous::Broken);
}

#[test]
fn confirm_asks_the_engine_now() {
    let world = World::new();
    let guard = world.client().mutex("x").blocking().acquire().unwrap();
    pollster::block_on(guard.confirm()).unwrap();
    world.store.forget_all();
    assert!(pollster::block_on(guard.confirm()).unwrap_err().is_lost());
    assert!(!guard.check());
}

#[test]
fn a_minimum_hold_blocks_without_a_holder() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let (other, ..) = new_client(&store, &env);
        let (from, min_hold) = (Instant::now(), Duration::from_millis(200));
        let guard = locks.mutex("x").acquire().await.unwrap();
        guard.release_at_least(min_hold).await.unwrap();
        assert!(other.mutex("x").try_acquire().await.unwrap_err().is_taken());
        drop(other.mutex("x").acquire().await.unwrap());
        assert!(from.elapsed() >= min_hold, "after {:?}", from.elapsed());
    });
}

#[test]
fn a_holder_stopped_for_three_ttl_is_not_valid() {
    let (world, locks, clock, runtime) = world_on_stopped_clock();
    let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
    runtime.block_on(async { guard.confirm().await.unwrap() });
    // The runtime of the keeper does not run, as in a process that is paused by SIGSTOP: nothing is renewed, nothing is
    // reported.
    clock.advance(TTL * 3);
    let other = world.client().mutex("x").blocking().acquire_within(PATIENCE).unwrap();
    assert!(!guard.check() && guard.remaining() == Some(Duration::ZERO), "without a notification");
    // The process continues: the loss is reported at once, and the late release does no harm.
    assert_eq!(runtime.block_on(guard.lost()), Loss::Lapsed);
    assert!(runtime.block_on(guard.release()).unwrap_err().is_lost());
    assert!(other.check());
    assert_eq!(other.previous(), Previous::Lapsed);
}

/// Records the reported losses.
#[derive(Default)]
struct Losses(Mutex<Vec<(Loss, Option<String>)>>);

impl Observe for Losses {
    fn event(&self, event: &Event<'_>) {
        if let Event::Lost { loss, trouble, .. } = event {
            self.0.lock().unwrap().push((*loss, trouble.map(str::to_owned)));
        }
    }
}

/// The error text of a lost request.
const RENEWAL_ERROR: &str = "a planned fault";

#[test]
fn a_lapse_is_reported_with_the_error_of_the_renewal() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (_, faulty, wire) = new_client(&store, &env);
        let losses = Arc::new(Losses::default());
        let locks = Locks::builder(wire)
            .keeper(Keeper::on(tokio::runtime::Handle::current()))
            .env(env)
            .observe(Arc::clone(&losses) as _)
            .build();
        let one = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        let (other, third) = (
            locks.rw("y").read().ttl(TTL).acquire().await.unwrap(),
            locks.rw("y").read().ttl(TTL).acquire().await.unwrap(),
        );
        assert_eq!((one.trouble(), third.trouble()), (None, None));
        (0..100).for_each(|_| faulty.next(Verb::Renew, Fault::RequestLost));
        assert_eq!((one.lost().await, other.lost().await), (Loss::Lapsed, Loss::Lapsed));
        let reported = std::mem::take(&mut *losses.0.lock().unwrap());
        assert_eq!(reported.len(), 3, "one for each guard: {reported:?}");
        for reported in reported {
            assert!(
                reported.0 == Loss::Lapsed && reported.1.as_ref().unwrap().contains(RENEWAL_ERROR),
                "{reported:?}"
            );
        }
        assert!(one.trouble().unwrap().contains(RENEWAL_ERROR));
        // The error of the renewal is in every error that reports the loss to the user.
        for error in [
            one.confirm().await.unwrap_err(),
            one.run(std::future::pending::<()>()).await.unwrap_err(),
            one.release().await.unwrap_err(),
            other.release().await.unwrap_err(),
            third.release().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Lost(Loss::Lapsed));
            assert!(error.to_string().contains(RENEWAL_ERROR), "{error}");
        }
    });
}

#[test]
fn a_past_renewal_error_is_no_reason_of_a_later_loss() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("x").ttl(TTL).acquire().await.unwrap();
        faulty.next(Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.unwrap_err().is_unknown());
        assert!(guard.trouble().unwrap().contains(RENEWAL_ERROR));
        guard.confirm().await.unwrap();
        assert_eq!(guard.trouble(), None);
        // A loss that the engine reports is not explained by an earlier failed renewal.
        faulty.next(Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.unwrap_err().is_unknown());
        store.forget_all();
        assert_eq!(guard.lost().await, Loss::Gone);
        let error = guard.release().await.unwrap_err();
        assert!(error.is_lost() && !error.to_string().contains(RENEWAL_ERROR), "{error}");
    });
}

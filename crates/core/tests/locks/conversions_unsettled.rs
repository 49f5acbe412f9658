//! Conversions without an answer: what the guard may rely on, and how long that lasts.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Guard, Keeper, Locks, Loss, Mode, NotConverted, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Fault, Faulty, Slow, Verb},
    dropper::poll_once,
};
use tokio::time::{Instant, sleep};

use crate::{
    altered::{Altered, client_of},
    cleanup::{new_client, new_store, paused_runtime},
    conversions::Lines,
};

/// More requests than any test here sends.
const ALL: usize = 1000;

/// A guard that is exclusive, or shared if it is to be upgraded.
async fn guard_of(locks: &Locks, upgrades: bool) -> Guard {
    let rw = locks.rw("x");
    let request = if upgrades { rw.read() } else { rw.write() };
    request.ttl(Duration::from_secs(6)).acquire().await.unwrap()
}

async fn convert(guard: Guard, upgrades: bool) -> Result<Guard, NotConverted> {
    if upgrades { guard.try_upgrade().await } else { guard.downgrade().await }
}

#[test]
fn no_confirmation_makes_a_hold_with_a_possible_upgrade_valid() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, faulty, _), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.rw("x").read().acquire().await.unwrap();
        let reader = other.rw("x").read().acquire().await.unwrap();
        faulty.next(Verb::Convert, Fault::Late);
        (0..5).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let guard = guard.try_upgrade().await.unwrap_err().into_guard();
        let confirmed = [guard.confirm().await, guard.extend(Duration::from_secs(60)).await.map(drop)];
        for error in confirmed.map(Result::unwrap_err) {
            assert!(error.is_unknown() && error.to_string().contains("not settled"), "{error}");
        }
        assert!(!guard.check(), "it may end at any moment");
        reader.release().await.unwrap();
        faulty.deliver_late().await;
        assert!(guard.confirm().await.is_err(), "it was upgraded");
        assert_eq!(guard.lost().await, Loss::Gone);
    });
}

#[test]
fn no_renewal_makes_a_hold_valid_whose_upgrade_may_still_be_applied() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&store)))));
        let slow = Arc::new(Slow::new(Arc::clone(&faulty) as _));
        let keeper = Keeper::on(tokio::runtime::Handle::current());
        let locks = Locks::builder(Arc::clone(&slow) as _).keeper(keeper).env(env.clone()).build();
        let (other, ..) = new_client(&store, &env);
        let guard = locks.rw("x").read().acquire().await.unwrap();
        let reader = other.rw("x").read().acquire().await.unwrap();
        faulty.next(Verb::Convert, Fault::Late);
        // The last of these frees the claim of the upgrade, and the next one does not find it.
        for fault in [Fault::RequestLost, Fault::RequestLost, Fault::ReplyLost] {
            faulty.next(Verb::Release, fault);
        }
        slow.hold_replies(Verb::Renew);
        let guard = guard.try_upgrade().await.unwrap_err().into_guard();
        slow.replies_held(Verb::Renew, 1).await;
        reader.release().await.unwrap();
        faulty.deliver_late().await;
        // Shorter than the time after which a renewal counts as unanswered.
        sleep(Duration::from_millis(500)).await;
        let writer = other.rw("x").write().try_acquire().await.unwrap();
        // The engine has confirmed the hold before it was upgraded.
        slow.open(Verb::Renew);
        // Also before the answer to a later renewal.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(!guard.check(), "a writer holds the name");
        }
        assert_eq!(guard.lost().await, Loss::Gone);
        writer.release().await.unwrap();
    });
}

#[test]
fn a_hold_is_renewed_while_its_conversion_is_not_answered() {
    for upgrades in [false, true] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let (locks, faulty, _) = new_client(&store, &env);
            let guard = guard_of(&locks, upgrades).await;
            (0..ALL).for_each(|_| faulty.next(Verb::Convert, Fault::RequestLost));
            let refused = convert(guard, upgrades).await.unwrap_err();
            assert!(refused.error().is_unknown(), "{refused}");
            let guard = refused.into_guard();
            guard.confirm().await.unwrap();
            assert!(guard.check() && guard.mode() == Mode::Shared);
        });
    }
}

#[test]
fn a_hold_is_renewed_until_a_late_upgrade_is_ruled_out() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = guard_of(&locks, true).await;
        (0..ALL).for_each(|_| faulty.next(Verb::Convert, Fault::RequestLost));
        (0..20).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let guard = guard.try_upgrade().await.unwrap_err().into_guard();
        sleep(Duration::from_secs(10)).await;
        assert!(!guard.check(), "no release was answered");
        sleep(Duration::from_secs(20)).await;
        assert!(guard.check());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_conversion_that_the_engine_refuses_for_now_ends_soon_and_changes_nothing() {
    for (fault, upgrades) in [leasehold_core::Fault::Retry, leasehold_core::Fault::Full]
        .into_iter()
        .flat_map(|fault| [(fault, false), (fault, true)])
    {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let engine = Arc::new(Altered::new(&store, |_| {}));
            let guard = guard_of(&client_of(&engine, &env), upgrades).await;
            engine.refuse_conversions(Some(fault));
            let (mode, began) = (guard.mode(), Instant::now());
            let refused = convert(guard, upgrades).await.unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(2) && !refused.error().is_unknown(), "{refused}");
            let guard = refused.into_guard();
            assert!(guard.check() && guard.mode() == mode);
            engine.refuse_conversions(None);
            convert(guard, upgrades).await.unwrap().release().await.unwrap();
        });
    }
}

#[test]
fn a_guard_that_is_dropped_in_an_outage_ends_its_conversion() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = new_client(&store, &env);
        let guard = guard_of(&locks, true).await;
        (0..ALL).for_each(|_| faulty.next(Verb::Convert, Fault::RequestLost));
        (0..ALL).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        drop(guard.try_upgrade().await.unwrap_err());
        sleep(Duration::from_secs(300)).await;
        counting.reset();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(counting.count(Verb::Release).calls, 0);
    });
}

#[test]
fn a_late_upgrade_is_ruled_out_when_it_could_not_arrive_any_more() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, counting) = new_client(&store, &env);
        let guard = guard_of(&locks, true).await;
        (0..ALL).for_each(|_| faulty.next(Verb::Convert, Fault::RequestLost));
        (0..ALL).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let guard = guard.try_upgrade().await.unwrap_err().into_guard();
        sleep(Duration::from_secs(300)).await;
        assert!(guard.check(), "renewals were answered all the time");
        counting.reset();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(counting.count(Verb::Release).calls, 0);
    });
}

#[test]
fn a_downgrade_without_an_answer_is_repeated() {
    for upgrades in [false, true] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let ((locks, faulty, counting), (other, ..)) =
                (new_client(&store, &env), new_client(&store, &env));
            let guard = guard_of(&locks, false).await;
            (0..ALL).for_each(|_| faulty.next(Verb::Convert, Fault::RequestLost));
            let guard = guard.downgrade().await.unwrap_err().into_guard();
            assert!(other.rw("x").read().try_acquire().await.unwrap_err().is_taken(), "it was not applied");
            faulty.clear_planned();
            if upgrades {
                // The upgrade repeats the downgrade before.
                let writer = guard.try_upgrade().await.unwrap();
                assert!(writer.check() && writer.mode() == Mode::Exclusive);
                return;
            }
            sleep(Duration::from_secs(6)).await;
            drop(other.rw("x").read().try_acquire().await.unwrap());
            assert!(guard.check());
            counting.reset();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(counting.count(Verb::Convert).calls, 0, "it was answered");
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn a_guard_that_is_lost_during_its_conversion_has_no_event_of_it() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&store)))));
        let (keeper, lines) = (Keeper::on(tokio::runtime::Handle::current()), Arc::new(Lines::default()));
        let builder = Locks::builder(Arc::clone(&slow) as _).keeper(keeper).env(env);
        let locks = builder.observe(Arc::clone(&lines) as _).build();
        let guard = locks.rw("x").write().max_hold(Duration::from_secs(1)).acquire().await.unwrap();
        slow.hold_replies(Verb::Convert);
        let mut downgrading = Box::pin(guard.downgrade());
        assert!(poll_once(downgrading.as_mut()).is_none());
        slow.replies_held(Verb::Convert, 1).await;
        sleep(Duration::from_secs(2)).await;
        slow.open(Verb::Convert);
        assert!(downgrading.await.unwrap_err().error().is_lost());
        assert_eq!(lines.all()[..2], ["granted exclusive", "lost exclusive"]);
        assert!(lines.all().iter().all(|line| !line.contains(" to ")));
    });
}

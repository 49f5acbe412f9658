//! Downgrades and upgrades of guards: who gets the name, what the guard has afterwards, and what is refused.

use std::{pin::pin, sync::Arc, time::Duration};

use leasehold_core::{Event, Locks, Loss, Mode, Observe, Owner, Previous, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Fault, Verb},
    dropper::{drop_at_every_poll, poll_once},
};
use tokio::time::sleep;

use crate::{
    World,
    altered::{Altered, client_of},
    cleanup::{new_client, new_store, paused_runtime},
    eventually,
    late::slow_client,
    waiter_count,
};

const TICK: Duration = Duration::from_millis(10);

#[test]
fn a_downgrade_lets_waiting_readers_in_and_a_writer_keeps_its_place() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let writer = locks.rw("x").write().blocking().acquire().unwrap();
    let token = writer.token();
    let mut reads = Box::pin(other.rw("x").read().acquire());
    assert!(poll_once(reads.as_mut()).is_none());
    eventually("the reader waits", || waiter_count(&locks, "x") == 1);
    let third = world.client();
    let mut writes = Box::pin(third.rw("x").write().acquire());
    assert!(poll_once(writes.as_mut()).is_none());
    eventually("the writer waits", || waiter_count(&locks, "x") == 2);
    let reader = writer.downgrade_blocking().unwrap();
    assert_eq!((reader.mode(), reader.token()), (Mode::Shared, token));
    let other_reader = pollster::block_on(reads).unwrap();
    assert_eq!(other_reader.previous(), Previous::Clean);
    assert!(world.client().rw("x").read().blocking().try_acquire().unwrap_err().is_taken(), "a writer waits");
    reader.release_blocking().unwrap();
    assert!(poll_once(writes.as_mut()).is_none(), "a reader is left");
    other_reader.release_blocking().unwrap();
    pollster::block_on(writes).unwrap().release_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn readers_of_the_same_process_join_a_downgraded_guard() {
    let world = World::new();
    let locks = world.client();
    let writer = locks.rw("x").write().blocking().acquire().unwrap();
    let mut reads: Vec<_> = (0..3).map(|_| Box::pin(locks.rw("x").read().acquire())).collect();
    assert!(reads.iter_mut().all(|read| poll_once(read.as_mut()).is_none()));
    let reader = writer.downgrade_blocking().unwrap();
    let readers: Vec<_> = reads.into_iter().map(|read| pollster::block_on(read).unwrap()).collect();
    assert!(locks.rw("x").write().blocking().try_acquire().unwrap_err().is_taken());
    drop((reader, readers));
    world.assert_no_leftovers();
}

#[test]
fn the_only_reader_is_upgraded_and_gets_a_larger_token() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let reader = locks.rw("x").read().blocking().acquire().unwrap();
    let (id, token) = (reader.id(), reader.token());
    let writer = reader.try_upgrade_blocking().unwrap();
    assert_eq!(writer.mode(), Mode::Exclusive);
    assert!(writer.token().number > token.number && writer.id() != id && writer.check());
    assert!(other.rw("x").read().blocking().try_acquire().unwrap_err().is_taken());
    writer.confirm_blocking().unwrap();
    let reader = writer.downgrade_blocking().unwrap();
    drop(other.rw("x").read().blocking().try_acquire().unwrap());
    let writer = reader.try_upgrade_blocking().unwrap();
    writer.release_blocking().unwrap();
    world.assert_no_leftovers();
}

#[test]
fn of_two_upgraders_none_waits_and_one_succeeds_when_the_other_has_gone() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let first = locks.rw("x").read().blocking().acquire().unwrap();
    let second = other.rw("x").read().blocking().acquire().unwrap();
    let first = first.try_upgrade_blocking().unwrap_err();
    let second = second.try_upgrade_blocking().unwrap_err();
    assert!(first.error().is_taken() && second.error().is_taken(), "{first} {second}");
    let (first, second) = (first.into_guard(), second.into_guard());
    assert!(first.check() && second.check());
    drop(second);
    assert_eq!(first.try_upgrade_blocking().unwrap().mode(), Mode::Exclusive);
    world.assert_no_leftovers();
}

#[test]
fn guards_and_requests_of_the_same_process_count_for_an_upgrade() {
    let world = World::new();
    let locks = world.client();
    let first = locks.rw("x").read().blocking().acquire().unwrap();
    let joined = locks.rw("x").read().blocking().acquire().unwrap();
    assert_eq!(first.id(), joined.id(), "they share a hold");
    let first = first.try_upgrade_blocking().unwrap_err();
    assert!(first.error().is_taken(), "{first}");
    drop(joined);
    let mut writes = Box::pin(locks.rw("x").write().acquire());
    assert!(poll_once(writes.as_mut()).is_none());
    let first = first.into_guard().try_upgrade_blocking().unwrap_err();
    assert!(first.error().is_taken(), "{first}");
    drop(first);
    drop(pollster::block_on(writes).unwrap());
    world.assert_no_leftovers();
}

#[test]
fn a_hold_that_its_owner_entered_again_is_not_converted() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let outer = owner.enter_blocking(locks.rw("x").write()).unwrap();
    let inner = owner.enter_blocking(locks.rw("x").read()).unwrap();
    assert_eq!((outer.id(), inner.mode()), (inner.id(), Mode::Shared));
    let inner = inner.try_upgrade_blocking().unwrap_err();
    assert!(
        inner.error().is_invalid() && inner.to_string().contains("exclusive hold of its owner"),
        "{inner}"
    );
    let outer = outer.downgrade_blocking().unwrap_err();
    assert!(outer.error().is_invalid() && outer.to_string().contains("entered the hold again"), "{outer}");
    drop(inner);
    let outer = outer.into_guard().downgrade_blocking().unwrap();
    let again = owner.enter_blocking(locks.rw("x").read()).unwrap();
    assert_eq!(again.token(), outer.token());
    assert!(
        owner.enter_blocking(locks.rw("x").write()).unwrap_err().is_invalid(),
        "it would wait for itself"
    );
    drop((again, outer));
    world.assert_no_leftovers();
}

#[test]
fn only_the_other_lock_mode_is_converted() {
    let world = World::new();
    let locks = world.client();
    for (guard, wanted) in [
        (locks.rw("r").read().blocking().acquire().unwrap().downgrade_blocking(), "shared, and only a guard"),
        (
            locks.mutex("m").blocking().acquire().unwrap().try_upgrade_blocking(),
            "exclusive, and only a guard",
        ),
        (locks.semaphore("s", 3).blocking().acquire().unwrap().downgrade_blocking(), "1 of 3 permits"),
        (locks.semaphore("t", 3).blocking().acquire().unwrap().try_upgrade_blocking(), "1 of 3 permits"),
    ] {
        let refused = guard.unwrap_err();
        assert!(refused.error().is_invalid() && refused.to_string().contains(wanted), "{refused}");
        assert!(refused.into_guard().check());
    }
    world.assert_no_leftovers();
}

#[test]
fn an_engine_without_conversions_refuses_with_its_reason() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let engine = Arc::new(Altered::new(&store, |profile| profile.no_conversion = Some("it is a test")));
        let guard = client_of(&engine, &env).mutex("x").acquire().await.unwrap();
        let refused = guard.downgrade().await.unwrap_err();
        assert!(
            refused.error().is_misconfigured() && refused.to_string().contains("it is a test"),
            "{refused}"
        );
        assert_eq!(refused.into_guard().mode(), Mode::Exclusive);
    });
}

#[test]
fn a_loss_after_a_conversion_reaches_what_waited_before_it() {
    let world = World::new();
    let (locks, operator) = (world.client(), world.client());
    let guard = locks.rw("x").read().blocking().acquire().unwrap();
    let lost = guard.lost();
    let guard = guard.try_upgrade_blocking().unwrap().downgrade_blocking().unwrap();
    assert!(guard.check());
    pollster::block_on(operator.break_hold("x", guard.token().number, true)).unwrap();
    assert_eq!(pollster::block_on(lost), Loss::Broken);
    let guard = guard.try_upgrade_blocking().unwrap_err();
    assert!(guard.error().is_lost(), "{guard}");
    assert!(!guard.into_guard().check());
}

#[test]
fn a_hold_that_the_engine_lost_is_reported_by_its_conversion() {
    for (upgrades, mode) in [(false, Mode::Exclusive), (true, Mode::Shared)] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let ((locks, ..), (operator, ..)) = (new_client(&store, &env), new_client(&store, &env));
            let request = if upgrades { locks.rw("x").read() } else { locks.mutex("x") };
            let guard = request.acquire().await.unwrap();
            assert_eq!(guard.mode(), mode);
            store.forget_all();
            let result = if upgrades { guard.try_upgrade().await } else { guard.downgrade().await };
            let refused = result.unwrap_err();
            assert!(refused.error().is_lost() && !refused.into_guard().check());
            drop(operator.mutex("x").try_acquire().await.unwrap());
        });
    }
}

#[test]
fn max_hold_goes_on_after_a_conversion() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let max_hold = Duration::from_secs(60);
        let guard = locks.rw("x").read().max_hold(max_hold).acquire().await.unwrap();
        sleep(max_hold / 2).await;
        let guard = guard.try_upgrade().await.unwrap();
        sleep(max_hold / 4).await;
        let guard = guard.downgrade().await.unwrap();
        assert!(guard.check());
        sleep(max_hold / 4 + TICK).await;
        assert_eq!(poll_once(pin!(guard.lost())), Some(Loss::MaxHold));
    });
}

#[test]
fn a_lost_request_or_answer_is_settled_by_a_repetition() {
    for fault in [Fault::RequestLost, Fault::ReplyLost, Fault::Duplicated, Fault::Late] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let ((locks, faulty, counting), (other, ..)) =
                (new_client(&store, &env), new_client(&store, &env));
            let guard = locks.rw("x").read().acquire().await.unwrap();
            faulty.next(Verb::Convert, fault);
            let guard = guard.try_upgrade().await.unwrap();
            assert!(other.rw("x").read().try_acquire().await.unwrap_err().is_taken());
            faulty.next(Verb::Convert, fault);
            let guard = guard.downgrade().await.unwrap();
            drop(other.rw("x").read().try_acquire().await.unwrap());
            faulty.deliver_late().await;
            guard.confirm().await.unwrap();
            assert_eq!(guard.mode(), Mode::Shared);
            let sent = if fault == Fault::Duplicated { 2 } else { 4 };
            assert_eq!(counting.count(Verb::Convert).calls, sent, "{fault:?}");
            guard.release().await.unwrap();
            assert!(locks.list("").await.unwrap().is_empty());
        });
    }
}

#[test]
fn a_late_upgrade_changes_nothing_after_it_was_refused() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, faulty, _), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.rw("x").read().acquire().await.unwrap();
        let reader = other.rw("x").read().acquire().await.unwrap();
        faulty.next(Verb::Convert, Fault::Late);
        let refused = guard.try_upgrade().await.unwrap_err();
        assert!(refused.error().is_taken(), "{refused}");
        let guard = refused.into_guard();
        reader.release().await.unwrap();
        faulty.deliver_late().await;
        sleep(TICK).await;
        assert!(guard.check(), "the claim of the upgrade was released, and the hold is confirmed");
        drop(other.rw("x").read().try_acquire().await.unwrap());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_hold_is_not_valid_until_a_late_upgrade_is_ruled_out() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, faulty, _), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.rw("x").read().acquire().await.unwrap();
        let reader = other.rw("x").read().acquire().await.unwrap();
        faulty.next(Verb::Convert, Fault::Late);
        // Releases are not answered for some seconds.
        (0..5).for_each(|_| faulty.next(Verb::Release, Fault::RequestLost));
        let guard = guard.try_upgrade().await.unwrap_err().into_guard();
        assert!(!guard.check(), "it may end at any moment");
        reader.release().await.unwrap();
        faulty.deliver_late().await;
        assert!(other.rw("x").read().try_acquire().await.unwrap_err().is_taken(), "it was upgraded");
        assert_eq!(guard.lost().await, Loss::Gone);
        drop(other.rw("x").write().try_acquire().await.unwrap());
    });
}

#[test]
fn an_answer_that_never_comes_leaves_a_downgraded_guard_shared() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, faulty, _), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.mutex("x").ttl(Duration::from_secs(600)).acquire().await.unwrap();
        (0..100).for_each(|_| faulty.next(Verb::Convert, Fault::ReplyLost));
        let refused = guard.downgrade().await.unwrap_err();
        assert!(
            refused.error().is_unknown() && refused.to_string().contains("counts as shared"),
            "{refused}"
        );
        let guard = refused.into_guard();
        assert!(guard.mode() == Mode::Shared && guard.check());
        drop(other.rw("x").read().try_acquire().await.unwrap());
        faulty.clear_planned();
        guard.release().await.unwrap();
        assert!(locks.list("").await.unwrap().is_empty());
    });
}

#[test]
fn a_renewal_in_flight_does_not_end_a_hold_that_is_upgraded() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        let guard = locks.rw("x").read().acquire().await.unwrap();
        slow.hold_requests(Verb::Renew);
        slow.requests_held(Verb::Renew, 1).await;
        slow.hold_replies(Verb::Convert);
        let mut upgrading = Box::pin(guard.try_upgrade());
        assert!(poll_once(upgrading.as_mut()).is_none());
        slow.replies_held(Verb::Convert, 1).await;
        // The engine answers that the shared hold is gone.
        slow.open(Verb::Renew);
        sleep(TICK).await;
        slow.open(Verb::Convert);
        let writer = upgrading.await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(writer.check());
        writer.release().await.unwrap();
    });
}

#[test]
fn a_reader_of_the_same_process_does_not_join_a_hold_that_is_upgraded() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        let guard = locks.rw("x").read().acquire().await.unwrap();
        slow.hold_replies(Verb::Convert);
        let mut upgrading = Box::pin(guard.try_upgrade());
        assert!(poll_once(upgrading.as_mut()).is_none());
        slow.replies_held(Verb::Convert, 1).await;
        let mut reading = Box::pin(locks.rw("x").read().acquire());
        assert!(poll_once(reading.as_mut()).is_none());
        sleep(TICK).await;
        assert!(poll_once(reading.as_mut()).is_none(), "the engine has upgraded the hold");
        slow.open(Verb::Convert);
        let writer = upgrading.await.unwrap();
        sleep(TICK).await;
        assert!(poll_once(reading.as_mut()).is_none() && writer.check());
        writer.release().await.unwrap();
        drop(reading.await.unwrap());
    });
}

#[test]
fn an_owner_that_enters_again_during_a_downgrade_gets_no_exclusive_guard() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        let owner = Owner::new("me");
        let guard = locks.rw("x").write().owner(owner.clone()).acquire().await.unwrap();
        slow.hold_replies(Verb::Convert);
        let mut downgrading = Box::pin(guard.downgrade());
        assert!(poll_once(downgrading.as_mut()).is_none());
        slow.replies_held(Verb::Convert, 1).await;
        let mut writing = Box::pin(locks.rw("x").write().owner(owner.clone()).acquire());
        assert!(poll_once(writing.as_mut()).is_none());
        slow.open(Verb::Convert);
        let reader = downgrading.await.unwrap();
        assert!(writing.await.unwrap_err().is_invalid(), "it would wait for itself");
        reader.release().await.unwrap();
    });
}

#[test]
fn a_dropped_conversion_leaves_nothing() {
    for (upgrades, remote) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        let locks = if remote { world.remote_client().0 } else { world.client() };
        drop_at_every_poll(
            || {
                let request = if upgrades { locks.rw("x").read() } else { locks.rw("x").write() };
                let guard = request.blocking().acquire().unwrap();
                async move {
                    let converted =
                        if upgrades { guard.try_upgrade().await } else { guard.downgrade().await };
                    converted.unwrap().release().await.unwrap();
                }
            },
            || {},
            |_| world.assert_no_leftovers(),
        );
    }
}

#[derive(Default)]
pub(crate) struct Lines(std::sync::Mutex<Vec<String>>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observe for Lines {
    fn event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Granted { mode, .. } => format!("granted {mode}"),
            Event::Converted { mode, from, .. } => format!("{from} to {mode}"),
            Event::Lost { mode, .. } => format!("lost {mode}"),
            Event::Released { mode, .. } => format!("released {mode}"),
            _ => return,
        };
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn a_conversion_has_an_event_and_the_end_has_the_new_mode() {
    let world = World::new();
    let lines = Arc::new(Lines::default());
    let engine = Arc::new(MemoryEngine::new(Arc::clone(&world.store)));
    let locks = Locks::builder(engine).observe(Arc::clone(&lines) as _).build();
    let guard = locks.rw("x").write().blocking().acquire().unwrap().downgrade_blocking().unwrap();
    let guard = guard.try_upgrade_blocking().unwrap();
    pollster::block_on(locks.break_hold("x", guard.token().number, true)).unwrap();
    pollster::block_on(guard.lost());
    drop(guard);
    let expected = [
        "granted exclusive",
        "exclusive to shared",
        "shared to exclusive",
        "lost exclusive",
        "released exclusive",
    ];
    assert_eq!(lines.all(), expected);
}

//! Memos where events cross: late writes, hand-overs, lost answers, and followers that are dropped again and again.

use std::{pin::pin, time::Duration};

use leasehold_core::{ErrorKind, Guard, Locks, MemoKind, NewMemo, Owner, Previous};
use leasehold_testkit::{
    decorators::{Fault, Verb},
    dropper::poll_once,
};
use tokio::time::{sleep, timeout};

use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
    memos::{found, memo, read},
};

const TICK: Duration = Duration::from_millis(10);

/// A memo that ends soon.
fn short_memo(bytes: &str, keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

/// Releases `guard` while another request of its process waits, and returns the guard of that request.
async fn pass_on(locks: &Locks, guard: Guard) -> Guard {
    let mut waiting = pin!(locks.mutex("n").acquire());
    assert!(poll_once(waiting.as_mut()).is_none());
    sleep(TICK).await;
    guard.release().await.unwrap();
    waiting.await.unwrap()
}

#[test]
fn a_late_write_never_lands_under_the_next_guard_of_the_process() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("n").acquire().await.unwrap();
        faulty.next(Verb::Memo, Fault::Late);
        {
            let mut dropped = pin!(guard.write_memo(memo("late")));
            assert!(poll_once(dropped.as_mut()).is_none());
            sleep(TICK).await;
        }
        let next = pass_on(&locks, guard).await;
        faulty.deliver_late().await;
        assert_eq!(read(&locks, "n").await, None);
        next.write_memo(memo("next")).await.unwrap();
        assert_eq!(read(&locks, "n").await, found("next", true));
    });
}

#[test]
fn the_memo_of_a_guard_is_not_held_by_the_next_guard_of_the_process() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let first = locks.mutex("n").acquire().await.unwrap();
        let first_id = first.id();
        let second = pass_on(&locks, first).await;
        assert_eq!(second.id(), first_id, "without a memo the hold is handed over");
        second.write_memo(memo("of the second")).await.unwrap();
        let third = pass_on(&locks, second).await;
        assert_eq!(read(&locks, "n").await, found("of the second", false));
        assert_eq!(third.previous(), Previous::Clean);
    });
}

#[test]
fn a_missing_memo_after_a_lost_answer_makes_the_outcome_unknown() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, faulty, _), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.mutex("n").acquire().await.unwrap();
        faulty.next(Verb::Memo, Fault::ReplyLost);
        let mut writing = pin!(guard.write_memo(memo("written")));
        assert!(poll_once(writing.as_mut()).is_none());
        sleep(TICK).await;
        assert_eq!(read(&other, "n").await, found("written", true));
        other.break_hold("n", guard.token().number, true).await.unwrap();
        let next = other.mutex("n").try_acquire().await.unwrap();
        next.release_with_memo(short_memo("next", TICK)).await.unwrap();
        sleep(TICK * 2).await;
        let error = writing.await.unwrap_err();
        assert!(error.is_unknown() && error.to_string().contains("no memo is stored"), "{error}");
    });
}

#[test]
fn the_release_with_a_memo_hides_no_abandoned_guard_of_the_hold() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let request = || locks.mutex("n").owner(owner.clone());
    let (first, second) = (request().blocking().acquire().unwrap(), request().blocking().acquire().unwrap());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _abandoned = first;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    second.release_with_memo_blocking(memo("done")).unwrap();
    let next = world.client().mutex("n").blocking().acquire().unwrap();
    assert_eq!(next.previous(), Previous::Abandoned);
    assert_eq!(pollster::block_on(read(&locks, "n")), found("done", false));
}

#[test]
fn a_follower_that_is_dropped_again_and_again_sees_each_change() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, ..), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let guard = locks.mutex("n").acquire().await.unwrap();
        guard.write_memo(short_memo("short", Duration::from_secs(10))).await.unwrap();
        let mut follower = other.follow_memo("n").unwrap();
        assert!(follower.changed().await.unwrap().is_some());
        // The end of a memo is not pushed: only the reads at intervals of 2 s find it.
        let mut calls = 0;
        let change = loop {
            calls += 1;
            assert!(calls < 30, "the follower does not read");
            if let Ok(change) = timeout(Duration::from_secs(1), follower.changed()).await {
                break change.unwrap();
            }
        };
        assert_eq!(change, None);
        assert!(calls >= 9, "the memo ends after 10 s, and {calls} calls of 1 s were made");
        other.close(Duration::ZERO).await;
        for _ in 0..2 {
            assert!(matches!(follower.changed().await.unwrap_err().kind(), ErrorKind::Closed));
        }
    });
}

//! Memos through `Locks` and guards: written under the hold, released together with it, read and followed.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Answer, BoxFuture, Claim, Engine, EngineError, ErrorKind, Hold, How, Keeper, Locks, Loss, MAX_MEMO_BYTES,
    MemoKind, Memos, Name, NewMemo, Notification, Owner, Previous, Profile, Release, Released, Renewed,
    memory::MemoryEngine,
};
use leasehold_testkit::{
    decorators::{Fault, Slow, Verb},
    dropper::poll_once,
};
use tokio::time::sleep;

use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
    inspect_macro::inspects_by,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn memo(bytes: &str) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, HOUR).unwrap()
}

/// The bytes of the memo, and whether its hold goes on.
pub(crate) async fn read(locks: &Locks, name: &str) -> Option<(String, bool)> {
    let memo = locks.read_memo(name).await.unwrap()?;
    Some((String::from_utf8(memo.bytes).unwrap(), memo.is_held))
}

pub(crate) fn found(bytes: &str, is_held: bool) -> Option<(String, bool)> {
    Some((bytes.to_owned(), is_held))
}

#[test]
fn a_memo_is_written_under_the_hold_and_outlives_it() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    assert_eq!(locks.read_memo_blocking("n").unwrap(), None);
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    guard.write_memo_blocking(memo("first")).unwrap();
    let first = other.read_memo_blocking("n").unwrap().unwrap();
    assert_eq!((first.token, first.version.id, first.is_held), (guard.token(), guard.id(), true));
    guard.write_memo_blocking(memo("second").print([3; 32])).unwrap();
    guard.release_blocking().unwrap();
    let second = other.read_memo_blocking("n").unwrap().unwrap();
    assert_eq!((&second.bytes[..], second.print, second.is_held), (&b"second"[..], Some([3; 32]), false));
    assert!(second.version.number > first.version.number && second.left <= HOUR);
    let next = other.mutex("n").blocking().acquire().unwrap();
    next.release_with_memo_blocking(memo("third")).unwrap();
    assert_eq!(pollster::block_on(read(&locks, "n")), found("third", false));
    world.assert_no_leftovers();
}

#[test]
fn the_release_with_a_memo_frees_the_name_and_never_hands_the_hold_over_inside_the_process() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    let id = guard.id();
    let mut waiting = std::pin::pin!(locks.mutex("n").acquire());
    assert!(poll_once(waiting.as_mut()).is_none());
    guard.release_with_memo_blocking(memo("done")).unwrap();
    let next = pollster::block_on(waiting).unwrap();
    assert_ne!(next.id(), id, "a claim of its own");
    assert_eq!(next.previous(), Previous::Clean);
    assert_eq!(pollster::block_on(read(&locks, "n")), found("done", false));
}

#[test]
fn a_guard_that_shares_its_hold_writes_and_leaves_the_hold_to_the_others() {
    let world = World::new();
    let locks = world.client();
    let owner = Owner::new("me");
    let request = || locks.mutex("n").owner(owner.clone());
    let (first, second) = (request().blocking().acquire().unwrap(), request().blocking().acquire().unwrap());
    assert_eq!(first.id(), second.id());
    first.release_with_memo_blocking(memo("first")).unwrap();
    assert_eq!(pollster::block_on(read(&locks, "n")), found("first", true));
    assert!(second.check());
    second.confirm_blocking().unwrap();
    second.release_with_memo_blocking(memo("second")).unwrap();
    assert_eq!(pollster::block_on(read(&locks, "n")), found("second", false));
}

#[test]
fn nothing_is_written_after_the_hold_was_lost() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    guard.write_memo_blocking(memo("before")).unwrap();
    other.break_hold_blocking("n", guard.token().number, true).unwrap();
    let error = guard.write_memo_blocking(memo("after")).unwrap_err();
    assert!(error.is_lost(), "{error}");
    let error = guard.release_with_memo_blocking(memo("after")).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(pollster::block_on(read(&locks, "n")), found("before", false));
    world.assert_no_leftovers();
}

#[test]
fn a_memo_of_another_kind_is_refused_and_the_hold_is_released_all_the_same() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    guard.release_with_memo_blocking(memo("once")).unwrap();
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    let latch = NewMemo::new(MemoKind::LATCH, "latch", HOUR).unwrap();
    for error in [
        guard.write_memo_blocking(latch.clone()).unwrap_err(),
        guard.release_with_memo_blocking(latch).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(error.is_misconfigured() && text.contains("kind once") && text.contains("\"n\""), "{text}");
    }
    assert!(locks.mutex("n").blocking().try_acquire().is_ok(), "the name is free");
    world.assert_no_leftovers();
}

#[test]
fn only_exclusive_holds_write_memos() {
    let world = World::new();
    let locks = world.client();
    let reader = locks.rw("n").read().blocking().acquire().unwrap();
    let error = reader.write_memo_blocking(memo("x")).unwrap_err();
    assert!(error.is_invalid() && error.to_string().contains("shared"), "{error}");
    assert!(reader.release_with_memo_blocking(memo("x")).unwrap_err().is_invalid());
    world.assert_no_leftovers();
    assert!(NewMemo::new(MemoKind::ONCE, vec![0; MAX_MEMO_BYTES + 1], HOUR).unwrap_err().is_invalid());
}

#[test]
fn a_lost_answer_is_repeated_and_a_lost_hold_is_read_back() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("n").acquire().await.unwrap();
        for fault in [Fault::RequestLost, Fault::ReplyLost] {
            faulty.next(Verb::Memo, fault);
            guard.write_memo(memo("kept")).await.unwrap();
        }
        // The first request ends the hold, and its answer is lost: the repetition finds no hold, and the stored version
        // tells that the write was done.
        faulty.next(Verb::Memo, Fault::ReplyLost);
        guard.release_with_memo(memo("released")).await.unwrap();
        assert_eq!(read(&locks, "n").await, found("released", false));
        let next = locks.mutex("n").try_acquire().await.unwrap();
        faulty.next(Verb::Memo, Fault::RequestLost);
        next.release_with_memo(memo("again")).await.unwrap();
        assert_eq!(read(&locks, "n").await, found("again", false));
        assert_eq!(faulty.pending(), 0);
    });
}

#[test]
fn a_late_write_replaces_no_later_memo() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        let guard = locks.mutex("n").acquire().await.unwrap();
        faulty.next(Verb::Memo, Fault::Late);
        {
            let mut dropped = std::pin::pin!(guard.write_memo(memo("late")));
            assert!(poll_once(dropped.as_mut()).is_none());
            sleep(Duration::from_millis(10)).await;
        }
        guard.write_memo(memo("newest")).await.unwrap();
        faulty.deliver_late().await;
        assert_eq!(read(&locks, "n").await, found("newest", true));
        faulty.next(Verb::Memo, Fault::Late);
        guard.release_with_memo(memo("end")).await.unwrap();
        let next = locks.mutex("n").try_acquire().await.unwrap();
        next.write_memo(memo("next")).await.unwrap();
        faulty.deliver_late().await;
        assert_eq!(read(&locks, "n").await, found("next", true));
    });
}

#[test]
fn an_engine_that_does_not_answer_makes_the_outcome_unknown_and_the_name_free_later() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&store)))));
        let keeper = Keeper::on(tokio::runtime::Handle::current());
        let locks =
            Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).keeper(keeper).env(env.clone()).build();
        let guard = locks.mutex("n").ttl(Duration::from_secs(5)).acquire().await.unwrap();
        slow.hold_requests(Verb::Memo);
        let error = guard.release_with_memo(memo("lost")).await.unwrap_err();
        assert!(error.is_unknown() && error.to_string().contains("unknown whether the memo"), "{error}");
        let (other, ..) = new_client(&store, &env);
        other.mutex("n").acquire().await.unwrap().release().await.unwrap();
        slow.open(Verb::Memo);
        assert_eq!(read(&other, "n").await, None);
    });
}

#[test]
fn a_dropped_release_with_a_memo_goes_on() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let guard = locks.mutex("n").acquire().await.unwrap();
        drop(guard.release_with_memo(memo("done")));
        let (other, ..) = new_client(&store, &env);
        other.mutex("n").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(read(&other, "n").await, found("done", false));
    });
}

#[test]
fn a_follower_gets_each_change_and_the_end_of_the_hold() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, ..), (other, ..)) = (new_client(&store, &env), new_client(&store, &env));
        let mut follower = other.follow_memo("n").unwrap();
        assert_eq!(follower.changed().await.unwrap(), None);
        let guard = locks.mutex("n").acquire().await.unwrap();
        for bytes in ["first", "second"] {
            guard.write_memo(memo(bytes)).await.unwrap();
            let change = follower.changed().await.unwrap().unwrap();
            assert_eq!((&change.bytes[..], change.is_held), (bytes.as_bytes(), true));
        }
        assert!(poll_once(std::pin::pin!(follower.changed())).is_none(), "nothing has changed");
        drop(guard);
        let change = follower.changed().await.unwrap().unwrap();
        assert_eq!((&change.bytes[..], change.is_held), (&b"second"[..], false));
        // The end of the memo is not pushed: the follower reads at intervals.
        assert_eq!(follower.changed().await.unwrap(), None);
        other.close(Duration::ZERO).await;
        assert!(matches!(follower.changed().await.unwrap_err().kind(), ErrorKind::Closed));
    });
}

#[test]
fn an_engine_without_memos_refuses_before_anything_is_sent() {
    let world = World::new();
    let engine = NoMemos(MemoryEngine::new(Arc::clone(&world.store)));
    let locks = Locks::new(Arc::new(engine));
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    for error in [
        locks.read_memo_blocking("n").unwrap_err(),
        locks.follow_memo("n").unwrap_err(),
        guard.write_memo_blocking(memo("x")).unwrap_err(),
        guard.release_with_memo_blocking(memo("x")).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(error.is_misconfigured() && text.contains("stores no memos"), "{text}");
    }
    assert_eq!(world.client().read_memo_blocking("n").unwrap(), None);
    world.assert_no_leftovers();
}

#[test]
fn the_loss_of_a_hold_is_reported_with_its_reason() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("n").blocking().acquire().unwrap();
    world.client().break_hold_blocking("n", guard.token().number, false).unwrap();
    let error = guard.write_memo_blocking(memo("x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Loss::Broken), "{error}");
}

/// The memory engine without its memos.
struct NoMemos(MemoryEngine);

impl Engine for NoMemos {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.0.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.0.claim(claim, how)
    }

    fn claim_all<'a>(
        &'a self,
        claims: &'a [Claim],
    ) -> BoxFuture<'a, Result<leasehold_core::AllAnswer, EngineError>> {
        self.0.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.0.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        self.0.release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.0.notifications()
    }

    fn memos(&self) -> Option<&dyn Memos> {
        None
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        None
    }
}

inspects_by!(NoMemos, |this| this.0);

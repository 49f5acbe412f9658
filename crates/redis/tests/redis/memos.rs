//! Memos: foreign data under their key, failures in the middle of a write, rights, replicas, and slots that move.

use std::{convert::Infallible, thread::spawn, time::Duration};

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Fault, Grant, Guard, HoldAfter, How, Inspect, Memo, MemoKind,
    MemoVersion, MemoWrite, Name, NewMemo, Notification, Written,
};
use leasehold_redis::RedisEngine;
use leasehold_testkit::server::RedisSentinelOptions;

use crate::{
    cluster_rig::ClusterRig,
    conformance::{PASSWORD, as_user},
    redlock_rig::RedlockRig,
    rig::{PATIENCE, Rig, acquire, claim_of},
    sentinel_rig::{SentinelRig, late_failover},
};

/// Far longer than a test takes.
const KEEP: Duration = Duration::from_secs(600);

fn memo(bytes: &[u8]) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, KEEP).unwrap()
}

/// A hold of the name "a".
async fn hold(engine: &RedisEngine) -> (Claim, Grant) {
    let claim = claim_of("a");
    match engine.claim(&claim, How::Create).await.unwrap() {
        Answer::Held(grant) => (claim, grant),
        answer => panic!("it is free: {answer:?}"),
    }
}

async fn write(
    engine: &RedisEngine,
    (claim, grant): &(Claim, Grant),
    (number, bytes): (u64, &[u8]),
    after: HoldAfter,
) -> Result<Written, EngineError> {
    let write = MemoWrite {
        name: claim.name.clone(),
        version: MemoVersion { id: claim.id, number },
        hold_token: grant.token,
        token: grant.token,
        memo: memo(bytes),
        after,
    };
    engine.memos().unwrap().write(&write).await
}

async fn read(engine: &RedisEngine) -> Result<Option<Memo>, EngineError> {
    engine.memos().unwrap().read(&Name::new("a").unwrap()).await
}

impl Rig {
    /// The key of a kind of side key of the name "a".
    fn side_key(&self, letter: char) -> String {
        let engine = self.engine();
        let key = self.run(async {
            write(&engine, &hold(&engine).await, (1, b"x"), HoldAfter::Release).await.unwrap();
            self.command(&["KEYS", "leasehold:{*}mlock:a"])
        });
        self.command(&["DEL", &key]);
        key.replace("}mlock", &format!("}}{letter}lock"))
    }
}

#[test]
fn foreign_data_under_the_key_of_a_memo_is_refused_and_stays() {
    let rig = Rig::new();
    let key = rig.side_key('m');
    let no_expiry = format!("1 once {} {:020} 7 - x", "a".repeat(32), 1);
    let other_version = no_expiry.replacen('1', "2", 1);
    let data: [&[&str]; 8] = [
        &["LPUSH", &key, "x"],
        &["HSET", &key, "x", "1"],
        &["ZADD", &key, "1", "x"],
        &["SET", &key, ""],
        &["SET", &key, "theirs", "PX", "600000"],
        &["SET", &key, &no_expiry],
        &["SET", &key, &other_version, "PX", "600000"],
        &["SETRANGE", &key, "40000000", "x"],
    ];
    let engine = rig.engine();
    for command in data {
        rig.command(command);
        let digest =
            || rig.command(&["EVAL", "return redis.sha1hex(redis.call('DUMP', KEYS[1]))", "1", &key]);
        let before = digest();
        rig.run(async {
            let held = hold(&engine).await;
            for after in [HoldAfter::Keep, HoldAfter::Release] {
                let error = write(&engine, &held, (1, b"x"), after).await.unwrap_err();
                assert_eq!(error.fault, Fault::Misconfigured, "{command:?}: {error:?}");
                assert!(error.message.contains(&key), "{error:?}");
            }
            let error = read(&engine).await.unwrap_err();
            assert!(error.fault == Fault::Misconfigured && error.message.contains(&key), "{error:?}");
        });
        assert_eq!(digest(), before, "{command:?}: it was changed");
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "1", "{command:?}: the hold goes on");
        rig.command(&["DEL", &key, "lock:a"]);
    }
}

/// The largest memo that foreign bytes can imitate is one byte too long.
#[test]
fn a_memo_that_is_too_long_is_foreign() {
    let rig = Rig::new();
    let (key, engine) = (rig.side_key('m'), rig.engine());
    let text = |len: usize| format!("1 once {} {:020} 7 - {}", "a".repeat(32), 1, "x".repeat(len));
    rig.command(&["SET", &key, &text(65_536), "PX", "600000"]);
    assert_eq!(rig.run(read(&engine)).unwrap().unwrap().bytes.len(), 65_536);
    rig.command(&["SET", &key, &text(65_537), "PX", "600000"]);
    assert_eq!(rig.run(read(&engine)).unwrap_err().fault, Fault::Misconfigured);
}

/// Under a key that another program overwrote or took, nothing is written; the memo can still be read.
#[test]
fn nothing_is_written_under_the_lock_of_another_program() {
    let rig = Rig::new();
    let engine = rig.engine();
    let overwritten: [&[&[&str]]; 3] = [
        &[&["SET", "lock:a", "theirs", "PX", "60000"]],
        &[&["DEL", "lock:a"], &["LPUSH", "lock:a", "x"]],
        &[&["DEL", "lock:a"]],
    ];
    for commands in overwritten {
        rig.run(async {
            let held = hold(&engine).await;
            write(&engine, &held, (1, b"ours"), HoldAfter::Keep).await.unwrap();
            assert!(read(&engine).await.unwrap().unwrap().is_held, "{commands:?}");
            commands.iter().for_each(|command| drop(rig.command(command)));
            for after in [HoldAfter::Keep, HoldAfter::Release] {
                let written = write(&engine, &held, (2, b"late"), after).await;
                assert_eq!(written.unwrap(), Written::Overtaken, "{commands:?}");
            }
            let memo = read(&engine).await.unwrap().unwrap();
            assert!(memo.bytes == b"ours" && !memo.is_held, "{commands:?}: {memo:?}");
        });
        rig.command(&["FLUSHALL"]);
    }
}

/// The write of a memo precedes the release in the script. If the release fails, because a side key has foreign data or
/// the user lacks a right, the memo is as before.
#[test]
fn a_release_that_fails_leaves_the_memo_as_it_was() {
    let rig = Rig::new();
    let (memo_key, queue, engine) = (rig.side_key('m'), rig.side_key('q'), rig.engine());
    rig.run(async {
        let held = hold(&engine).await;
        for old in [None, Some("old")] {
            if let Some(old) = old {
                write(&engine, &held, (1, old.as_bytes()), HoldAfter::Keep).await.unwrap();
            }
            rig.command(&["LPUSH", &queue, "theirs"]);
            let error = write(&engine, &held, (2, b"new"), HoldAfter::Release).await.unwrap_err();
            assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
            rig.command(&["DEL", &queue]);
            rig.command(&["ACL", "SETUSER", "default", "-hdel"]);
            let error = write(&engine, &held, (2, b"new"), HoldAfter::Release).await.unwrap_err();
            rig.command(&["ACL", "SETUSER", "default", "+hdel"]);
            assert_eq!(error.fault, Fault::Denied, "{error:?}");
            let memo = read(&engine).await.unwrap();
            assert_eq!(memo.as_ref().map(|memo| &memo.bytes[..]), old.map(str::as_bytes));
            assert_eq!(rig.command(&["EXISTS", "lock:a"]), "1", "the hold goes on");
        }
        let left: u64 = rig.command(&["PTTL", &memo_key]).parse().unwrap();
        assert!((1..=KEEP.as_millis() as u64 + 10_000).contains(&left), "{left}");
        assert_eq!(write(&engine, &held, (3, b"new"), HoldAfter::Release).await.unwrap(), Written::Done);
        assert_eq!(read(&engine).await.unwrap().unwrap().bytes, b"new");
    });
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
}

/// The key of an ended memo stays for as long as an earlier write can arrive, and counts for nothing else.
#[test]
fn an_ended_memo_is_not_read_and_gives_way_to_one_of_another_kind() {
    let rig = Rig::new();
    let (memo_key, engine) = (rig.side_key('m'), rig.engine());
    rig.run(async {
        let held = hold(&engine).await;
        for after in [HoldAfter::Keep, HoldAfter::Release] {
            write(&engine, &held, (1, b"once"), HoldAfter::Keep).await.unwrap();
            let left: u64 = rig.command(&["PTTL", &memo_key]).parse().unwrap();
            let longest = KEEP.as_millis() as u64 + 10_000;
            assert!((longest / 2..=longest).contains(&left), "{left}");
            assert!(read(&engine).await.unwrap().unwrap().left <= KEEP);
            // The end of the memo: the key has the rest of its life left.
            rig.command(&["PEXPIRE", &memo_key, "10000"]);
            assert_eq!(read(&engine).await.unwrap(), None);
            let (claim, grant) = &held;
            let write = MemoWrite {
                name: claim.name.clone(),
                version: MemoVersion { id: claim.id, number: 2 },
                hold_token: grant.token,
                token: grant.token,
                memo: NewMemo::new(MemoKind::LATCH, "latch", KEEP).unwrap(),
                after,
            };
            assert_eq!(engine.memos().unwrap().write(&write).await.unwrap(), Written::Done, "{after:?}");
            assert_eq!(read(&engine).await.unwrap().unwrap().kind, MemoKind::LATCH);
            rig.command(&["DEL", &memo_key]);
        }
    });
}

/// The grant to the next waiter fails when the hold has ended already: then the memo stays, because the name is free.
#[test]
fn a_name_that_became_free_has_its_memo_although_the_release_failed() {
    let rig = Rig::new();
    let (entries, engine) = (rig.side_key('e'), rig.engine());
    rig.run(async {
        let held = hold(&engine).await;
        let waiter = claim_of("a");
        assert!(matches!(engine.claim(&waiter, How::Create).await, Ok(Answer::Waiting(_))));
        rig.command(&["HSET", &entries, &waiter.id.to_string(), "theirs"]);
        let error = write(&engine, &held, (1, b"x"), HoldAfter::Release).await.unwrap_err();
        assert_eq!(error.fault, Fault::Unknown, "{error:?}");
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
        assert_eq!(read(&engine).await.unwrap().unwrap().bytes, b"x");
    });
}

/// A full server refuses memos, as it refuses new claims; holds are still released.
#[test]
fn a_full_server_refuses_memos() {
    let rig = Rig::new();
    let engine = rig.engine();
    rig.run(async {
        let held = hold(&engine).await;
        rig.command(&["CONFIG", "SET", "maxmemory", "1"]);
        for after in [HoldAfter::Keep, HoldAfter::Release] {
            let error = write(&engine, &held, (1, b"x"), after).await.unwrap_err();
            assert!(error.fault == Fault::Refused && error.message.contains("maxmemory"), "{error:?}");
            assert!(read(&engine).await.unwrap().is_none(), "{after:?}");
        }
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "1", "the hold goes on");
    });
    rig.command(&["DEL", "lock:a"]);
    rig.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let guard = acquire(&rig.locks(), "a");
    rig.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = guard.release_with_memo_blocking(memo(b"x")).unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0", "core released the hold");
}

/// The documented rights of a locker, and of a team, which reads and writes the memos of its own prefix only.
#[test]
fn documented_rights_allow_memos_of_the_own_prefix() {
    let (_directory, rig) = as_user("leasehold");
    acquire(&rig.locks(), "a").release_with_memo_blocking(memo(b"x")).unwrap();
    assert_eq!(rig.locks().read_memo_blocking("a").unwrap().unwrap().bytes, b"x");
    let (_directory, mut rig) = as_user("team-a");
    let login = rig.config.clone().login("team-a", PASSWORD);
    rig.config = login.clone().prefix("team-a:").unwrap();
    let guard = acquire(&rig.locks(), "a");
    guard.write_memo_blocking(memo(b"x")).unwrap();
    guard.release_blocking().unwrap();
    assert_eq!(rig.locks().read_memo_blocking("a").unwrap().unwrap().bytes, b"x");
    rig.config = login.prefix("team-b:").unwrap();
    assert!(rig.locks().read_memo_blocking("a").unwrap_err().is_denied());
}

/// With `wait=2` a memo counts when both replicas have it, and the hold does not end before.
#[test]
fn a_memo_counts_once_the_replicas_have_it() {
    let options = RedisSentinelOptions { down_after: Duration::from_secs(120), ..late_failover() };
    let mut rig = SentinelRig::new(options);
    rig.config = rig.config.wait(2);
    let engine = rig.engine();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let held = runtime.block_on(async {
        let held = hold(&engine).await;
        rig.redis.pause(1);
        for after in [HoldAfter::Keep, HoldAfter::Release] {
            let error = write(&engine, &held, (1, b"x"), after).await.unwrap_err();
            assert!(error.fault == Fault::Unknown && error.message.contains("only 1 of the 2"), "{error:?}");
            assert!(rig.has(0, "lock:a"), "{after:?}: the hold goes on");
        }
        held
    });
    rig.redis.resume(1);
    rig.until("the replicas have it", || {
        runtime.block_on(write(&engine, &held, (2, b"y"), HoldAfter::Release)).is_ok()
    });
    assert_eq!(runtime.block_on(read(&engine)).unwrap().unwrap().bytes, b"y");
    assert!(!rig.has(0, "lock:a"));
    let key = rig.redis.command(0, &["KEYS", "leasehold:{*}mlock:a"]).concat();
    assert!(rig.has(1, &key) && rig.has(2, &key), "{key}");
}

/// A memo that has not reached the promoted replica is lost with the old master; one that has is there.
#[test]
fn a_memo_on_the_promoted_replica_survives_a_fail_over() {
    let mut rig = SentinelRig::new(late_failover());
    let locks = rig.locks();
    acquire(&locks, "a").release_with_memo_blocking(memo(b"x")).unwrap();
    rig.replicate(0);
    rig.redis.kill(0);
    let _ = rig.redis.master();
    let deadline = std::time::Instant::now() + PATIENCE;
    let read = loop {
        match locks.read_memo_blocking("a") {
            Ok(memo) => break memo,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(read.unwrap().bytes, b"x");
}

/// While the keys of a slot are on two nodes, memos are neither read nor written: the requests wait until the end.
#[test]
fn the_memo_of_a_slot_that_moves_is_written_afterwards() {
    let rig = ClusterRig::with(3, 0, &[]);
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    guard.write_memo_blocking(memo(b"before")).unwrap();
    let (slot, _, to) = rig.slot_and_nodes("a");
    rig.cluster().open_slot(slot, to).unwrap();
    let engine = rig.engine();
    let error = rig.run(read(&engine)).unwrap_err();
    assert!(error.fault == Fault::Retry && error.message.contains("is moving"), "{error:?}");
    let writing = spawn(move || guard.release_with_memo_blocking(memo(b"after")));
    while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
    rig.cluster().close_slot(slot).unwrap();
    writing.join().unwrap().unwrap();
    let memo = rig.locks().read_memo_blocking("a").unwrap().unwrap();
    assert_eq!(memo.bytes, b"after");
}

/// Followers get every change, also the break of the hold by an operator. The server forgets a follower whose process
/// ended.
#[test]
fn a_break_notifies_the_followers_of_the_memo() {
    let rig = Rig::new();
    let (writer, follower, operator) = (rig.engine(), rig.engine(), rig.engine());
    let name = Name::new("a").unwrap();
    let hint = || async {
        let hints = tokio::time::timeout(PATIENCE, async {
            loop {
                let hints = follower.notifications().await;
                if hints
                    .iter()
                    .any(|hint| matches!(hint, Notification::Memo { name } if name.as_str() == "a"))
                {
                    break;
                }
            }
        });
        hints.await.unwrap();
    };
    rig.run(async {
        let followed = follower.memos().unwrap().follow(&name).unwrap();
        hint().await;
        let list = rig.command(&["KEYS", "leasehold:{*}olock:a"]);
        let left: u64 = rig.command(&["PTTL", &list]).parse().unwrap();
        assert!((1..=30_000).contains(&left), "a client that is gone is notified for 30 s at most: {left}");
        let held = hold(&writer).await;
        write(&writer, &held, (1, b"x"), HoldAfter::Keep).await.unwrap();
        hint().await;
        Inspect::break_hold(&*operator, &name, held.1.token.number, false).await.unwrap();
        hint().await;
        assert!(!read(&follower).await.unwrap().unwrap().is_held);
        drop(followed);
    });
    rig.until("the list of followers is gone", || rig.command(&["KEYS", "leasehold:{*}olock:a"]).is_empty());
}

#[test]
fn redlock_has_no_memos_and_says_why() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    for error in [
        locks.read_memo_blocking("a").unwrap_err(),
        acquire(&locks, "a").release_with_memo_blocking(memo(b"x")).unwrap_err(),
    ] {
        assert!(error.is_misconfigured() && error.to_string().contains("a minority of the nodes"), "{error}");
    }
}

#[test]
fn a_repeat_of_stored_work_costs_one_request() {
    let rig = Rig::new();
    let paid = |_: &Guard| Ok::<_, Infallible>("paid");
    assert!(!rig.locks().once("k").run_blocking(paid).unwrap().is_replayed());
    let locks = rig.locks();
    // The first repeat connects.
    assert!(locks.once("k").run_blocking(paid).unwrap().is_replayed());
    rig.command(&["CONFIG", "RESETSTAT"]);
    assert!(locks.once("k").run_blocking(paid).unwrap().is_replayed());
    assert_eq!(crate::sets::calls(&rig), ["evalsha 1"]);
}

//! Locks of other programs under our keys (a string with a random value), and other foreign values.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, Engine, ErrorKind, Hold, How, Loss, Mode, Notification, Previous, Release,
};
use leasehold_redis::RedisEngine;
use leasehold_testkit::{SetOnDrop, lease_retries::with_longer_leases};

use crate::rig::{PATIENCE, Rig, acquire};

/// The usual release script of other programs.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

#[test]
fn plain_clients_and_leasehold_exclude_each_other_in_every_mode() {
    let rig = Rig::new();
    let locks = rig.locks();
    for request in [locks.mutex("m"), locks.rw("r").read(), locks.semaphore("s", 3)].map(|r| r.blocking()) {
        let guard = request.acquire().unwrap();
        let key = ["m", "r", "s"]
            .iter()
            .map(|name| format!("lock:{name}"))
            .find(|key| rig.command(&["EXISTS", key]) == "1");
        let key = key.expect("the lock is stored under its key");
        assert_eq!(rig.command(&["SET", &key, "theirs", "NX", "PX", "30000"]), "", "it is not theirs");
        guard.release_blocking().unwrap();
        assert_eq!(rig.command(&["SET", &key, "theirs", "NX", "PX", "30000"]), "OK");
        let error = request.try_acquire().unwrap_err();
        assert!(error.is_taken(), "{error}");
        assert_eq!(rig.command(&["EVAL", COMPARE_AND_DELETE, "1", &key, "theirs"]), "1");
        request.try_acquire().unwrap().release_blocking().unwrap();
    }
}

#[test]
fn a_foreign_holder_is_shown_and_never_touched() {
    let rig = Rig::new();
    let locks = rig.locks();
    assert_eq!(rig.command(&["SET", "lock:a", "theirs"]), "OK", "without an expiry");
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(300)).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert_eq!(rig.command(&["GET", "lock:a"]), "theirs");
    assert_eq!(rig.command(&["TTL", "lock:a"]), "-1");
    let view = rig.show("a");
    let [holder] = &view.holders[..] else { panic!("{view:?}") };
    assert!(holder.foreign && holder.token.is_none() && holder.remaining.is_none() && holder.id == "theirs");
    assert_eq!(view.mode, Some(Mode::Exclusive));
    rig.command(&["PEXPIRE", "lock:a", "20000"]);
    assert!(rig.show("a").holders[0].remaining.is_some_and(|remaining| remaining <= Duration::from_secs(20)));
    assert!(rig.show("a").waiters.is_empty(), "a claim that gave up leaves no queue entry");
}

#[test]
fn a_waiter_is_granted_when_a_foreign_lock_ends() {
    let rig = Rig::new();
    let locks = rig.locks();
    for end in [["DEL", "lock:a"].as_slice(), &["PEXPIRE", "lock:a", "100"]] {
        assert_eq!(rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]), "OK");
        let waiting = std::thread::spawn({
            let request = locks.mutex("a").blocking();
            move || request.acquire_within(PATIENCE)
        });
        rig.until("it waits", || rig.show("a").waiters.len() == 1);
        rig.command(end);
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
    }
}

#[test]
fn the_end_of_a_foreign_lock_wakes_the_head_of_the_queue() {
    let rig = Rig::new();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.run(async {
        rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
        for end in [["DEL", "lock:a"].as_slice(), &["PEXPIRE", "lock:a", "50"], &["FLUSHALL"]] {
            rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
            let answer = engine.claim(&claim, How::Create).await.unwrap();
            assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
            rig.command(end);
            let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
            assert!(
                matches!(notification[..], [Notification::Recheck { id, .. }] if id == claim.id)
                    || matches!(notification[..], [Notification::AskAll])
            );
            if end[0] != "FLUSHALL" {
                // Another program acquired the lock before the claim: the claim continues to wait, and watches the new
                // lock.
                rig.command(&["SET", "lock:a", "another", "PX", "60000"]);
                let answer = engine.claim(&claim, How::Ask).await.unwrap();
                assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
                rig.command(&["DEL", "lock:a"]);
                let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
                assert!(
                    matches!(notification[..], [Notification::Recheck { id, .. }] if id == claim.id),
                    "{notification:?}"
                );
            }
        }
    });
}

/// Sends `claim` with `How::Ask`, then deletes the foreign lock, and expects that the client of the claim is notified
/// of that. `ahead` is the number of waiters ahead of the claim.
async fn receives_recheck(rig: &Rig, engine: &RedisEngine, claim: &Claim, ahead: u32) {
    let answer = engine.claim(claim, How::Ask).await.unwrap();
    assert!(matches!(answer, Answer::Waiting(hint) if hint.ahead == Some(ahead)), "{answer:?}");
    rig.command(&["DEL", "lock:a"]);
    let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
    assert!(
        matches!(notification[..], [Notification::Recheck { id, .. }] if id == claim.id),
        "{notification:?}"
    );
}

#[test]
fn a_dead_head_of_the_queue_for_a_foreign_lock_is_passed_over() {
    let rig = Rig::new();
    let (dead, alive) = ([rig.engine(), rig.engine(), rig.engine(), rig.engine()], rig.engine());
    rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
    let next_claim = rig.claim("a");
    rig.run(async {
        for engine in &dead {
            assert!(matches!(engine.claim(&rig.claim("a"), How::Create).await, Ok(Answer::Waiting(_))));
        }
        let answer = alive.claim(&next_claim, How::Create).await.unwrap();
        assert!(matches!(answer, Answer::Waiting(hint) if hint.ahead == Some(4)), "{answer:?}");
        drop(dead);
        rig.until("the server knows", || rig.server.command(&["PUBSUB", "CHANNELS"]).len() == 1);
        // The foreign lock still exists when this claim asks, as if other programs always acquired the name again at
        // once.
        receives_recheck(&rig, &alive, &next_claim, 0).await;
    });
}

#[test]
fn a_hung_head_of_the_queue_does_not_block_the_next_waiter() {
    let rig = Rig::new();
    let (hangs, alive) = (rig.engine(), rig.engine());
    rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
    let next_claim = rig.claim("a");
    rig.run(async {
        assert!(matches!(hangs.claim(&rig.claim("a"), How::Create).await, Ok(Answer::Waiting(_))));
        assert!(matches!(alive.claim(&next_claim, How::Create).await, Ok(Answer::Waiting(_))));
        receives_recheck(&rig, &alive, &next_claim, 1).await;
    });
}

#[test]
fn a_foreign_type_under_the_lock_key_ends_a_hold() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(Duration::from_secs(60)).blocking().acquire().unwrap();
    rig.command(&["DEL", "lock:a"]);
    rig.command(&["LPUSH", "lock:a", "x"]);
    // The renewal reports the loss long before the deadline.
    assert_eq!(rig.run(guard.confirm()).unwrap_err().kind(), ErrorKind::Lost(Loss::Overwritten));
    assert!(!guard.check());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Overwritten));
    assert_eq!(rig.command(&["LRANGE", "lock:a", "0", "-1"]), "x", "left as it was");
}

/// A list has an entry for a name that cannot be read, with the problem, and still has all other names. Of a long value
/// only the beginning is shown.
#[test]
fn a_list_reports_unreadable_entries_and_shortens_long_ones() {
    let rig = Rig::new();
    let locks = rig.locks();
    let (good, garbled) = (acquire(&locks, "good"), acquire(&locks, "garbled"));
    let record = &rig.server.command(&["KEYS", "leasehold:*clock:garbled"])[0];
    rig.command(&["SET", record, "no record"]);
    rig.command(&["LPUSH", "lock:list", "x"]);
    rig.command(&["EVAL", "redis.call('SET', KEYS[1], ('x'):rep(40000000))", "1", "lock:long"]);
    let views = rig.run(locks.list("")).unwrap();
    let listed: Vec<_> =
        views.iter().map(|view| (view.name.as_str(), view.holders.len(), view.problem.is_some())).collect();
    assert_eq!(listed, [("garbled", 0, true), ("good", 1, false), ("list", 1, true), ("long", 1, false)]);
    assert_eq!(views[3].holders[0].id, "x".repeat(128) + "…", "the beginning");
    rig.command(&["DEL", "lock:list", "lock:long"]);
    good.release_blocking().unwrap();
    drop(garbled);
}

#[test]
fn a_record_of_another_version_is_refused() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let records = rig.server.command(&["KEYS", "leasehold:*c*lock:a"]);
    // A value that a future version may write: a map with version 2.
    rig.command(&["EVAL", "redis.call('SET', KEYS[1], cmsgpack.pack({ v = 2 }))", "1", &records[0]]);
    let error = other.mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("layout"), "{error}");
    drop(guard);
}

#[test]
fn a_client_that_overwrites_the_lock_key_ends_the_hold() {
    let rig = Rig::new();
    let locks = rig.locks();
    for request in [locks.mutex("a"), locks.rw("a").read()] {
        let guard = request.ttl(Duration::from_secs(60)).blocking().acquire().unwrap();
        rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
        // The renewal reports the loss long before the deadline.
        assert_eq!(rig.run(guard.confirm()).unwrap_err().kind(), ErrorKind::Lost(Loss::Overwritten));
        assert!(!guard.check());
        assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Overwritten));
        assert_eq!(rig.command(&["GET", "lock:a"]), "theirs", "left as it was");
        rig.command(&["DEL", "lock:a"]);
    }
}

/// A gap comes when the name has passed from one of our claims to the next for long enough: during the gap other
/// programs can acquire the name, and after the gap the head of the queue must ask again.
#[test]
fn a_gap_interrupts_a_long_run_of_hand_overs() {
    with_longer_leases(Duration::from_millis(200), "the requests were made within the gap", |gap| {
        let mut rig = Rig::new();
        rig.config = rig.config.gap(gap);
        leaves_a_gap(&rig, gap)
    });
}

/// Returns false if the machine was too slow to observe the gap; panics if the engine did anything wrong.
fn leaves_a_gap(rig: &Rig, gap: Duration) -> bool {
    let (first_client, second_client) = (rig.engine(), rig.engine());
    let (first, next) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        let Ok(Answer::Held(grant)) = first_client.claim(&first, How::Create).await else {
            panic!("it is free")
        };
        assert!(matches!(second_client.claim(&next, How::Create).await, Ok(Answer::Waiting(_))));
        // The name has not passed between our claims for long enough for a gap: so it is handed over at once.
        let release = |claim: &leasehold_core::Claim, token| Release {
            name: claim.name.clone(),
            id: claim.id,
            mode: claim.mode,
            token: Some(token),
            min_hold: None,
            ended: Previous::Clean,
        };
        first_client.release(&[release(&first, grant.token)]).await;
        let notification = tokio::time::timeout(PATIENCE, second_client.notifications()).await.unwrap();
        let [Notification::Granted { grant, .. }] = &notification[..] else { panic!("{notification:?}") };
        let third = rig.claim("a");
        assert!(matches!(first_client.claim(&third, How::Create).await, Ok(Answer::Waiting(_))));
        tokio::time::sleep(10 * gap).await;
        second_client
            .renew(&[Hold {
                name: next.name.clone(),
                id: next.id,
                token: grant.token,
                mode: next.mode,
                ttl: next.ttl,
            }])
            .await;
        second_client.release(&[release(&next, grant.token)]).await;
        let notification = tokio::time::timeout(PATIENCE, first_client.notifications()).await.unwrap();
        assert!(
            matches!(&notification[..], [Notification::Recheck { id, .. }] if *id == third.id),
            "{notification:?}"
        );
        let Ok(Answer::Waiting(hint)) = first_client.claim(&third, How::Ask).await else { return false };
        assert!(hint.ask_in.is_some_and(|remaining| remaining <= gap), "{hint:?}");
        assert!(
            matches!(second_client.claim(&rig.claim("a"), How::Create).await, Ok(Answer::Waiting(_))),
            "a new claim is not granted in the gap either"
        );
        if rig.command(&["SET", "lock:a", "theirs", "NX", "PX", "30000"]) != "OK" {
            return false;
        }
        tokio::time::sleep(gap).await;
        assert!(
            matches!(first_client.claim(&third, How::Ask).await, Ok(Answer::Waiting(_))),
            "the other program holds it"
        );
        rig.command(&["DEL", "lock:a"]);
        assert!(matches!(first_client.claim(&third, How::Ask).await, Ok(Answer::Held(_))));
        true
    })
}

/// The default time for which a name passes between our claims before other programs get a gap.
const USUAL_RUN: Duration = Duration::from_secs(1);

#[test]
fn the_default_gap_applies_only_after_another_program_was_seen() {
    for seen in [false, true] {
        let rig = Rig::new();
        let (first_client, second_client) = (rig.engine(), rig.engine());
        let (mut early, first, next) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
        early.may_queue = false;
        rig.run(async {
            if seen {
                rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
                assert!(matches!(first_client.claim(&early, How::Create).await, Ok(Answer::Taken(_))));
                rig.command(&["DEL", "lock:a"]);
            }
            let Ok(Answer::Held(grant)) = first_client.claim(&first, How::Create).await else {
                panic!("it is free")
            };
            assert!(matches!(second_client.claim(&next, How::Create).await, Ok(Answer::Waiting(_))));
            tokio::time::sleep(USUAL_RUN).await;
            first_client
                .release(&[Release {
                    name: first.name.clone(),
                    id: first.id,
                    mode: first.mode,
                    token: Some(grant.token),
                    min_hold: None,
                    ended: Previous::Clean,
                }])
                .await;
            let notification = tokio::time::timeout(PATIENCE, second_client.notifications()).await.unwrap();
            assert_eq!(
                seen,
                matches!(&notification[..], [Notification::Recheck { id, .. }] if *id == next.id),
                "{notification:?}"
            );
            assert_eq!(
                !seen,
                matches!(&notification[..], [Notification::Granted { id, .. }] if *id == next.id),
                "{notification:?}"
            );
        });
    }
}

#[test]
fn the_default_gap_prevents_starvation_of_a_polling_program() {
    let rig = Rig::new();
    assert_eq!(rig.command(&["SET", "lock:a", "theirs", "PX", "300"]), "OK");
    polling_program_gets_the_lock(&rig);
}

#[test]
fn a_configured_gap_prevents_starvation_of_a_polling_program() {
    let mut rig = Rig::new();
    rig.config = rig.config.gap(Duration::from_millis(100));
    polling_program_gets_the_lock(&rig);
}

/// Two of our clients want the name all the time, and a program that polls still acquires the lock several times.
fn polling_program_gets_the_lock(rig: &Rig) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&is_done);
        for _ in 0..2 {
            let (request, is_done) = (rig.locks().mutex("a").blocking(), &is_done);
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    let guard = request.acquire().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                    drop(guard);
                }
            });
        }
        rig.until("both clients want the name", || !rig.show("a").waiters.is_empty());
        for _ in 0..3 {
            rig.until("the other program gets it", || {
                rig.command(&["SET", "lock:a", "theirs", "NX", "PX", "300"]) == "OK"
            });
        }
    });
}

//! Memos: their key and its lease, foreign data, full servers, late requests, followers, rights.

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Fault, Grant, HoldAfter, How, Inspect, Memo, MemoKind, MemoVersion,
    MemoWrite, Name, NewMemo, Notification, Written,
};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::{claims, server::etcd_metrics};

use crate::{
    late_requests::{TRIES, applied_proposals, await_arrival, hold_back},
    rig::{PATIENCE, Rig, SMALL_DATABASE, acquire},
};

/// Far longer than a test takes.
const KEEP: Duration = Duration::from_secs(3600);

fn memo(bytes: impl Into<Vec<u8>>) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, KEEP).unwrap()
}

/// A claim that holds its name, and its grant.
pub(crate) type Hold = (Claim, Grant);

/// A hold of a name.
pub(crate) async fn hold(engine: &EtcdEngine, claim: Claim) -> Hold {
    match engine.claim(&claim, How::Create).await.unwrap() {
        Answer::Held(grant) => (claim, grant),
        answer => panic!("it is free: {answer:?}"),
    }
}

pub(crate) fn write_of((claim, grant): &Hold, (number, bytes): (u64, &[u8]), after: HoldAfter) -> MemoWrite {
    MemoWrite {
        name: claim.name.clone(),
        version: MemoVersion { id: claim.id, number },
        hold_token: grant.token,
        token: grant.token,
        memo: memo(bytes),
        after,
    }
}

async fn write(
    engine: &EtcdEngine,
    hold: &Hold,
    memo: (u64, &[u8]),
    after: HoldAfter,
) -> Result<Written, EngineError> {
    engine.memos().unwrap().write(&write_of(hold, memo, after)).await
}

pub(crate) async fn read(engine: &EtcdEngine) -> Result<Option<Memo>, EngineError> {
    engine.memos().unwrap().read(&Name::new("a").unwrap()).await
}

impl Rig {
    /// The key of the memo of the name "a".
    pub(crate) fn memo_key(&self) -> &'static str {
        if self.has_lock_keys() { "leasehold//key-memo/a" } else { "leasehold//locks/memo/a" }
    }

    /// Writes a value on a lease that lasts longer than a test.
    fn put_on_lease(&self, key: &str, value: &str) {
        let granted = self.server.command(&["lease", "grant", "600"]).concat();
        let lease = format!("--lease={}", granted.split(' ').nth(1).unwrap());
        self.server.command(&["put", &lease, "--", key, value]);
    }

    /// How many requests the server has received that read or write data or leases.
    fn requests(&self) -> u64 {
        let methods = ["Txn", "Range", "Put", "DeleteRange", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive"];
        let page = etcd_metrics(self.server.port()).unwrap();
        let is_counted = |line: &&str| {
            let of = |method: &&str| {
                line.starts_with(&format!("grpc_server_started_total{{grpc_method=\"{method}\""))
            };
            methods.iter().any(of)
        };
        page.lines()
            .filter(is_counted)
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

/// The text of a memo of the claim with this id.
fn text(id: impl std::fmt::Display, number: u64, bytes: &str) -> String {
    format!("1 once {id} {number} 7 ff - 0 1 {bytes}")
}

const OTHER_ID: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn foreign_data_under_the_key_of_a_memo_is_refused_and_stays() {
    for rig in [Rig::new(), Rig::with_lock_keys("")] {
        let (key, engine) = (rig.memo_key(), rig.engine());
        let no_lease = text(OTHER_ID, 1, "x");
        rig.put_on_lease(key, &no_lease);
        assert_eq!(rig.run(read(&engine)).unwrap().unwrap().bytes, b"x", "with a lease it would be a memo");
        let other_version = no_lease.replacen('1', "2", 1);
        let too_long = text(OTHER_ID, 1, &"x".repeat(65_537));
        for (value, on_lease) in
            [(&*no_lease, false), ("", true), ("theirs", true), (&other_version, true), (&too_long, true)]
        {
            if on_lease {
                rig.put_on_lease(key, value);
            } else {
                rig.server.command(&["put", "--", key, value]);
            }
            let stored = || rig.server.command(&["get", key, "-w", "json", "--rev=0"]).concat();
            let kvs = || stored().split("\"kvs\"").nth(1).unwrap().to_owned();
            let before = kvs();
            rig.run(async {
                let held = hold(&engine, rig.claim("a")).await;
                for after in [HoldAfter::Keep, HoldAfter::Release] {
                    let error = write(&engine, &held, (1, b"x"), after).await.unwrap_err();
                    assert_eq!(error.fault, Fault::Misconfigured, "{value:.30}: {error:?}");
                    assert!(error.message.contains(key), "{error:?}");
                }
                let error = read(&engine).await.unwrap_err();
                assert!(error.fault == Fault::Misconfigured && error.message.contains(key), "{error:?}");
                assert_eq!(kvs(), before, "{value:.30}: it was changed");
                assert!(!Inspect::show(&*engine, &held.0.name).await.unwrap().holders.is_empty());
                engine.release(&claims::release_of(&held.0)).await;
            });
        }
    }
}

/// Under a key that an operator or another program changed, nothing is written; the memo can still be read.
#[test]
fn nothing_is_written_under_a_hold_that_was_broken_overwritten_or_deleted() {
    for rig in [Rig::new(), Rig::with_lock_keys("")] {
        let (engine, operator) = (rig.engine(), rig.engine());
        for how in ["broken", "overwritten", "deleted"] {
            rig.run(async {
                let held = hold(&engine, rig.claim("a")).await;
                write(&engine, &held, (1, b"ours"), HoldAfter::Keep).await.unwrap();
                assert!(read(&engine).await.unwrap().unwrap().is_held, "{how}");
                let key = String::from_utf8(engine.held_by(held.0.id).unwrap().key).unwrap();
                match how {
                    "broken" => {
                        let token = held.1.token.number;
                        let broken = Inspect::break_hold(&*operator, &held.0.name, token, false).await;
                        assert_eq!(broken.unwrap(), leasehold_core::Broken::Done);
                    }
                    "overwritten" => drop(rig.server.command(&["put", &key, "theirs"])),
                    _ => drop(rig.server.command(&["del", &key])),
                }
                for after in [HoldAfter::Keep, HoldAfter::Release] {
                    let written = write(&engine, &held, (2, b"late"), after).await;
                    assert_eq!(written.unwrap(), Written::Overtaken, "{how}");
                }
                let memo = read(&engine).await.unwrap().unwrap();
                assert!(memo.bytes == b"ours" && !memo.is_held, "{how}: {memo:?}");
                engine.release(&claims::release_of(&held.0)).await;
            });
            rig.server.command(&["del", "", "--from-key"]);
        }
    }
}

/// Nobody finds the name free without the memo: one revision has both changes.
#[test]
fn a_memo_is_written_at_the_revision_that_frees_the_name() {
    for rig in [Rig::new(), Rig::with_lock_keys("")] {
        let guard = acquire(&rig.locks(), "a");
        let held: Vec<String> = rig.keys();
        let before = rig.revision();
        guard.release_with_memo_blocking(memo("x")).unwrap();
        assert_eq!(rig.revision(), before + 1);
        assert_eq!(rig.keys_at(before), held);
        assert_eq!(rig.keys_at(before + 1), [rig.memo_key()]);
    }
}

/// The documented costs, after the process has made the leases for its holds and its memos.
#[test]
fn a_stored_result_costs_one_request_and_a_fresh_run_four() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let run = |locks: &leasehold_core::Locks, name: &str| {
        let work = async |_: &leasehold_core::Guard| Ok::<_, Infallible>("result");
        rig.run(locks.once(name).run(work)).unwrap().is_replayed()
    };
    // The lease of the first lock of a process is not kept, the lease of the second is.
    assert!(!run(&locks, "first") && !run(&locks, "second"));
    assert!(run(&other, "first"), "its first request connects");
    let before = rig.requests();
    assert!(!run(&locks, "third"));
    assert_eq!(rig.requests() - before, 4, "two reads, the lock, the release with the result");
    let before = rig.requests();
    assert!(run(&other, "third") && run(&locks, "third"));
    assert_eq!(rig.requests() - before, 2, "one each");
    // The next value of a leader, too, is one request.
    let leading = rig.run(locks.election("leader").value("one").campaign()).unwrap();
    let proclaim = || {
        let before = rig.requests();
        rig.run(leading.proclaim("two")).unwrap();
        rig.requests() - before
    };
    // On a busy machine a renewal can be among the requests.
    assert!((0..20).any(|_| proclaim() == 1));
    rig.run(leading.resign()).unwrap();
}

#[test]
fn memos_share_leases_and_a_lease_that_is_gone_is_replaced() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "lease").release_blocking().unwrap();
    let leases = rig.leases();
    for number in 0..20 {
        let guard = acquire(&locks, &number.to_string());
        guard.release_with_memo_blocking(memo(number.to_string())).unwrap();
    }
    assert!(rig.leases() <= leases + 2, "one for the holds, one for the memos");
    let listed = rig.server.command(&["get", "leasehold//locks/memo/7", "-w", "json"]).concat();
    let lease: i64 = listed.split("\"lease\":").nth(1).unwrap().split('}').next().unwrap().parse().unwrap();
    rig.server.command(&["lease", "revoke", &format!("{lease:x}")]);
    assert!(rig.run(locks.read_memo("7")).unwrap().is_none());
    acquire(&locks, "7").release_with_memo_blocking(memo("again")).unwrap();
    assert_eq!(rig.run(locks.read_memo("7")).unwrap().unwrap().bytes, b"again");
}

/// The value of a leader is kept for more than a year, in case it leads so long; its lease ends with its resignation.
#[test]
fn a_leader_that_resigns_leaves_no_lease_but_that_of_its_end() {
    let rig = Rig::new();
    let locks = rig.locks();
    let _held = acquire(&locks, "held");
    let leases = rig.leases();
    let leading = locks.election("a").value("one").campaign_blocking().unwrap();
    leading.proclaim_blocking("two").unwrap();
    assert_eq!(rig.leases(), leases + 1, "the lease of its value");
    let lease = rig.server.command(&["get", rig.memo_key(), "-w", "json"]).concat();
    let lease: i64 = lease.split("\"lease\":").nth(1).unwrap().split('}').next().unwrap().parse().unwrap();
    leading.resign_blocking().unwrap();
    let is_listed = || rig.server.command(&["lease", "list"]).contains(&format!("{lease:x}"));
    rig.until("the lease is revoked", || !is_listed());
    assert_eq!(rig.leases(), leases + 1, "the lease of its end");
}

/// Writes that are in flight when the database becomes full are applied, and answered with the same error as those
/// after them.
#[test]
fn a_full_server_refuses_memos_and_what_it_refuses_is_not_stored() {
    let rig = Rig::with(&[SMALL_DATABASE]);
    let engine = rig.engine();
    let fill = async |name: usize| {
        let held = hold(&engine, rig.claim(&name.to_string())).await;
        let bytes = vec![b'x'; 65_536];
        let mut number = 0;
        let error = loop {
            number += 1;
            match write(&engine, &held, (number, &bytes), HoldAfter::Keep).await {
                Ok(written) => assert_eq!(written, Written::Done),
                Err(error) => break error,
            }
        };
        assert!(error.fault == Fault::Refused && error.message.contains("full"), "{error:?}");
        let memo = engine.memos().unwrap().read(&held.0.name).await.unwrap();
        let stored = memo.map_or(0, |memo| memo.version.number);
        assert_eq!(stored, number - 1, "the last one that was answered \"done\"");
        let error = write(&engine, &held, (number + 1, b"x"), HoldAfter::Release).await.unwrap_err();
        assert_eq!(error.fault, Fault::Refused, "{error:?}");
        let view = Inspect::show(&*engine, &held.0.name).await.unwrap();
        assert!(!view.holders.is_empty(), "the hold goes on");
        engine.release(&claims::release_of(&held.0)).await;
    };
    rig.run(futures_util::future::join_all((0..32).map(fill)));
    assert!(rig.keys().iter().all(|key| key.contains("/memo/")), "{:?}", rig.keys());
}

/// A write whose connection died arrives when a later write of the same hold is stored.
#[test]
fn a_late_write_replaces_no_later_memo() {
    let rig = Rig::new();
    let arrived = (0..TRIES).any(|_| {
        let (proxy, engine) = rig.proxied();
        let later = rig.run(async {
            // The lease of the memo is there, so the next write is one request.
            let other = hold(&engine, rig.claim("other")).await;
            write(&engine, &other, (1, b"x"), HoldAfter::Release).await.unwrap();
            let held = hold(&engine, rig.claim("a")).await;
            let late = write_of(&held, (1, b"late"), HoldAfter::Keep);
            let mut sent = engine.memos().unwrap().write(&late);
            hold_back(&proxy, &mut sent).await;
            drop(sent);
            proxy.cut_clients();
            text(held.0.id, 2, "later")
        });
        rig.put_on_lease(rig.memo_key(), &later);
        let before = applied_proposals(&rig);
        proxy.release_held();
        let arrived = await_arrival(|| applied_proposals(&rig) > before);
        let stored = rig.server.command(&["get", rig.memo_key(), "--print-value-only"]).concat();
        assert_eq!(stored, later);
        drop(engine);
        rig.server.command(&["del", "", "--from-key"]);
        arrived
    });
    assert!(arrived);
}

/// Waits until the client is told that the memo of the name may have changed.
pub(crate) async fn hint(engine: &EtcdEngine, name: &str) {
    let hinted = async {
        loop {
            let is_hint = |hint: &Notification| matches!(hint, Notification::Memo { name: changed } if changed.as_str() == name);
            if engine.notifications().await.iter().any(is_hint) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, hinted).await.expect("a notification comes");
}

/// A follower that has read the memo is told of the end of its hold by the server: the break by an operator, the end of
/// the lease of a process that is gone, and in between the loss of its own connection.
#[test]
fn followers_are_told_how_ever_the_hold_ends() {
    for rig in [Rig::new(), Rig::with_lock_keys("")] {
        let (proxy, follower) = rig.proxied();
        let (writer, operator) = (rig.engine(), rig.engine());
        let name = Name::new("a").unwrap();
        rig.run(async {
            let followed = follower.memos().unwrap().follow(&name).unwrap();
            hint(&follower, "a").await;
            let held = hold(&writer, rig.claim("a")).await;
            write(&writer, &held, (1, b"x"), HoldAfter::Keep).await.unwrap();
            hint(&follower, "a").await;
            assert!(read(&follower).await.unwrap().unwrap().is_held);
            Inspect::break_hold(&*operator, &name, held.1.token.number, false).await.unwrap();
            hint(&follower, "a").await;
            assert!(!read(&follower).await.unwrap().unwrap().is_held);
            writer.release(&claims::release_of(&held.0)).await;
            proxy.reset();
            // The new connection has its watch.
            hint(&follower, "a").await;
            let short = Claim { ttl: Duration::from_secs(2), ..rig.claim("a") };
            let held = hold(&writer, short).await;
            write(&writer, &held, (2, b"y"), HoldAfter::Keep).await.unwrap();
            hint(&follower, "a").await;
            while read(&follower).await.unwrap().is_none_or(|memo| memo.bytes != b"y") {
                hint(&follower, "a").await;
            }
            // Nobody keeps its lease alive any more.
            drop(writer);
            while read(&follower).await.unwrap().unwrap().is_held {
                hint(&follower, "a").await;
            }
            drop(followed);
        });
    }
}

/// A name of the other layout with the same prefix is another lock, and its memo another memo.
#[test]
fn the_memos_of_the_two_layouts_are_separate() {
    let rig = Rig::new();
    let mut with_lock_keys = Rig::with_lock_keys("/locks");
    with_lock_keys.config = with_lock_keys.config.members(vec![crate::rig::local(rig.server.port())]);
    acquire(&rig.locks(), "a").release_with_memo_blocking(memo("directory")).unwrap();
    acquire(&with_lock_keys.locks(), "a").release_with_memo_blocking(memo("key")).unwrap();
    for (locks, bytes) in [(rig.locks(), "directory"), (with_lock_keys.locks(), "key")] {
        assert_eq!(locks.read_memo_blocking("a").unwrap().unwrap().bytes, bytes.as_bytes());
    }
}

/// The engines of these tests are shared by their tasks.
#[test]
fn a_memo_is_written_while_others_wait() {
    let rig = Rig::new();
    let (engine, waiter): (Arc<EtcdEngine>, _) = (rig.engine(), rig.engine());
    rig.run(async {
        let held = hold(&engine, rig.claim("a")).await;
        let waits = rig.claim("a");
        assert!(matches!(waiter.claim(&waits, How::Create).await, Ok(Answer::Waiting(_))));
        write(&engine, &held, (1, b"x"), HoldAfter::Release).await.unwrap();
        let granted = async {
            loop {
                let is_grant =
                    |hint: &Notification| matches!(hint, Notification::Granted { id, .. } if *id == waits.id);
                if waiter.notifications().await.iter().any(is_grant) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, granted).await.expect("the waiter is granted the name by the server");
        assert_eq!(read(&waiter).await.unwrap().unwrap().bytes, b"x");
        waiter.release(&claims::release_of(&waits)).await;
    });
}

//! Memos: foreign data, failures in the middle of a write, and followers.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Env, Fault, Grant, HoldAfter, How, Inspect, Lineage, Loss,
    MIN_MEMO_KEEP, Memo, MemoKind, MemoVersion, MemoWrite, Name, NewMemo, Notification, Token, Written,
};
use leasehold_testkit::server::Proxy;
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    raw_client::{Kind, RawClient},
    relay::Relay,
    rig::{PATIENCE, Rig, acquire, exclusive, local, release_of},
};

/// Far longer than a test takes.
pub(crate) const KEEP: Duration = Duration::from_secs(600);

pub(crate) fn memo(bytes: &[u8], keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

/// A hold of this claim.
pub(crate) async fn hold(engine: &ZookeeperEngine, claim: Claim) -> (Claim, Grant) {
    match engine.claim(&claim, How::Create).await.unwrap() {
        Answer::Held(grant) => (claim, grant),
        answer => panic!("it is free: {answer:?}"),
    }
}

pub(crate) async fn write(
    engine: &ZookeeperEngine,
    (claim, grant): &(Claim, Grant),
    (number, memo): (u64, NewMemo),
    after: HoldAfter,
) -> Result<Written, EngineError> {
    let write = MemoWrite {
        name: claim.name.clone(),
        version: MemoVersion { id: claim.id, number },
        hold_token: grant.token,
        token: grant.token,
        memo,
        after,
    };
    engine.memos().unwrap().write(&write).await
}

pub(crate) async fn read(engine: &ZookeeperEngine, name: &str) -> Result<Option<Memo>, EngineError> {
    engine.memos().unwrap().read(&Name::new(name).unwrap()).await
}

/// Stores a memo and releases the name.
pub(crate) async fn store(engine: &ZookeeperEngine, claim: Claim, bytes: &[u8], keep: Duration) {
    let held = hold(engine, claim).await;
    let written = write(engine, &held, (1, memo(bytes, keep)), HoldAfter::Release).await;
    assert_eq!(written.unwrap(), Written::Done);
}

/// A client whose requests a relay can stop.
pub(crate) fn relayed(rig: &Rig) -> (Relay, Arc<ZookeeperEngine>) {
    let relay = Relay::start(rig.server.port());
    let config = Config::new(vec![local(relay.port)]);
    (relay, Arc::new(ZookeeperEngine::new(config, &Env::system())))
}

#[test]
fn foreign_data_in_the_node_of_a_memo_is_refused_and_stays() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(store(&engine, exclusive("a"), b"x", KEEP));
    let [path] = &raw.memos()[..] else { panic!("there is one memo") };
    assert!(path.starts_with("/locks/%memos/") && path.ends_with("/a"), "{path}");
    for data in [&b""[..], b"theirs", b"leasehold 1 memo once 1 x 7 - 1 _c_x\n"] {
        raw.set_data(path, data);
        let held = rig.run(hold(&engine, exclusive("a")));
        for after in [HoldAfter::Keep, HoldAfter::Release] {
            let error = rig.run(write(&engine, &held, (1, memo(b"y", KEEP)), after)).unwrap_err();
            assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
            assert!(error.message.contains(path), "{error:?}");
        }
        let error = rig.run(read(&engine, "a")).unwrap_err();
        assert!(error.fault == Fault::Misconfigured && error.message.contains(path), "{error:?}");
        assert_eq!(raw.data(path), data);
        assert_eq!(rig.nodes().len(), 1, "the hold goes on");
        rig.run(engine.release(&release_of(&held.0)));
    }
}

/// R28: another grant of the same claim has another token.
#[test]
fn a_write_with_another_token_changes_nothing() {
    let rig = Rig::new();
    let engine = rig.engine();
    rig.run(async {
        let (claim, grant) = hold(&engine, exclusive("a")).await;
        let token = grant.token;
        for other in [
            Token { number: token.number + 256, ..token },
            Token { number: token.number - 256, ..token },
            Token { number: token.number + 1, ..token },
            Token { lineage: Lineage::new(token.lineage.get() + 1), ..token },
        ] {
            let held = (claim.clone(), Grant { token: other, ..grant.clone() });
            for after in [HoldAfter::Keep, HoldAfter::Release] {
                let written = write(&engine, &held, (1, memo(b"x", KEEP)), after).await;
                assert_eq!(written.unwrap(), Written::Overtaken, "{other:?}");
            }
        }
        assert_eq!(read(&engine, "a").await.unwrap(), None);
        assert_eq!(rig.nodes().len(), 1, "the hold goes on");
        let written = write(&engine, &(claim, grant), (1, memo(b"x", KEEP)), HoldAfter::Release).await;
        assert_eq!(written.unwrap(), Written::Done);
    });
}

/// R28: the time of the server decides whether the memo of another kind still counts.
#[test]
fn a_memo_replaces_one_of_another_kind_only_after_its_end() {
    let rig = Rig::new();
    let engine = rig.engine();
    let latch = |keep| NewMemo::new(MemoKind::LATCH, "latch", keep).unwrap();
    rig.run(async {
        let held = hold(&engine, exclusive("a")).await;
        write(&engine, &held, (1, latch(KEEP)), HoldAfter::Keep).await.unwrap();
        for after in [HoldAfter::Keep, HoldAfter::Release] {
            let error = write(&engine, &held, (2, memo(b"once", KEEP)), after).await.unwrap_err();
            assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
        }
        write(&engine, &held, (3, latch(MIN_MEMO_KEEP)), HoldAfter::Keep).await.unwrap();
        while read(&engine, "a").await.unwrap().is_some() {}
        write(&engine, &held, (4, memo(b"once", KEEP)), HoldAfter::Release).await.unwrap();
        assert_eq!(read(&engine, "a").await.unwrap().unwrap().bytes, b"once");
    });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// R28: the memo and the condition that the hold is not broken are one step.
#[test]
fn a_write_that_arrives_after_the_hold_was_broken_changes_nothing() {
    let rig = Rig::new();
    let (relay, engine) = relayed(&rig);
    let operator = rig.engine();
    for (force, after) in [
        (false, HoldAfter::Keep),
        (false, HoldAfter::Release),
        (true, HoldAfter::Keep),
        (true, HoldAfter::Release),
    ] {
        rig.run(async {
            let held = hold(&engine, exclusive("a")).await;
            write(&engine, &held, (1, memo(b"before", KEEP)), HoldAfter::Keep).await.unwrap();
            relay.stop_at(b"late write".to_vec());
            let late = (2, memo(b"late write", KEEP));
            let writing = write(&engine, &held, late.clone(), after);
            let breaking = async {
                tokio::task::spawn_blocking(relay.stopped()).await.unwrap();
                let (name, token) = (&held.0.name, held.1.token.number);
                Inspect::break_hold(&*operator, name, token, force).await.unwrap();
                relay.go_on();
            };
            let (mut written, ()) = tokio::join!(writing, breaking);
            while written.is_err() {
                written = write(&engine, &held, late.clone(), after).await;
            }
            assert_eq!(written.unwrap(), Written::Overtaken, "force: {force}, {after:?}");
            let memo = read(&operator, "a").await.unwrap().unwrap();
            assert!(memo.bytes == b"before" && !memo.is_held, "force: {force}, {after:?}: {memo:?}");
            let nodes = rig.nodes().len();
            assert_eq!(nodes, usize::from(!force), "a broken hold lasts until its release");
            engine.release(&release_of(&held.0)).await;
        });
    }
}

/// The answer to a write that ended the hold is lost: the write is done, and neither client nor server has the hold.
#[test]
fn a_write_with_the_release_whose_answer_is_lost_is_done() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let locks = leasehold_core::Locks::builder(engine).build();
    let guard = acquire(&locks, "a");
    proxy.hold_answers();
    let writing = std::thread::spawn(move || guard.release_with_memo_blocking(memo(b"result", KEEP)));
    rig.until("the hold has ended", || rig.nodes().is_empty());
    proxy.reset();
    writing.join().unwrap().unwrap();
    let other = rig.locks();
    assert_eq!(other.read_memo_blocking("a").unwrap().unwrap().bytes, b"result");
    acquire(&locks, "a").release_blocking().unwrap();
    acquire(&other, "a").release_blocking().unwrap();
}

/// The node of a hold that a write ended is gone without a loss, also while it is unknown whether it was applied.
#[test]
fn an_unanswered_write_with_the_release_is_no_loss() {
    let rig = Rig::new();
    let relay = Relay::start(rig.server.port());
    let proxy = Proxy::start(relay.port);
    let engine = Arc::new(ZookeeperEngine::new(Config::new(vec![local(proxy.port())]), &Env::system()));
    let mut raw = RawClient::as_super(rig.server.port());
    let held = rig.run(hold(&engine, exclusive("a")));
    // Their losses show that the client has looked at the nodes of its holds.
    let (sentinel, last) = (rig.run(hold(&engine, exclusive("b"))), rig.run(hold(&engine, exclusive("c"))));
    let lost = async |lost: &(Claim, Grant)| loop {
        let next =
            tokio::time::timeout(PATIENCE, engine.notifications()).await.expect("the loss is reported");
        for notification in next {
            let Notification::Lost { id, loss, .. } = notification else { continue };
            assert_ne!(id, held.0.id, "{loss:?}");
            if id == lost.0.id {
                return assert_eq!(loss, Loss::Gone);
            }
        }
    };
    rig.run(async {
        relay.stop_at(b"result".to_vec());
        let path = |name: &str| rig.nodes().into_iter().find(|node| node.starts_with(name));
        let result = (1, memo(b"result", KEEP));
        let writing = write(&engine, &held, result.clone(), HoldAfter::Release);
        let breaking = async {
            tokio::task::spawn_blocking(relay.stopped()).await.unwrap();
            proxy.hold_answers();
            relay.go_on();
            while path("/locks/a/").is_some() {
                tokio::task::yield_now().await;
            }
            raw.delete(&path("/locks/b/").unwrap());
            proxy.reset();
        };
        let (written, ()) = tokio::join!(writing, breaking);
        assert_eq!(written.unwrap_err().fault, Fault::Unknown);
        lost(&sentinel).await;
        raw.delete(&path("/locks/c/").unwrap());
        lost(&last).await;
        let written = write(&engine, &held, result, HoldAfter::Release).await;
        assert_eq!(written.unwrap(), Written::Overtaken, "core reads it back");
        assert_eq!(read(&engine, "a").await.unwrap().unwrap().bytes, b"result");
    });
}

/// A watch ends with its event and with its connection.
#[test]
fn a_follower_is_notified_of_each_change_also_after_a_reconnect() {
    let rig = Rig::new();
    let (proxy, follower) = rig.proxied();
    let (engine, operator, name) = (rig.engine(), rig.engine(), Name::new("a").unwrap());
    rig.run(async {
        let hint = async || {
            let hinted = async {
                loop {
                    let notifications = follower.notifications().await;
                    let is_hint = |notification: &Notification| {
                        matches!(notification, Notification::Memo { name: changed } if *changed == name)
                    };
                    if notifications.iter().any(is_hint) {
                        return;
                    }
                }
            };
            tokio::time::timeout(PATIENCE, hinted).await.expect("the follower is notified");
        };
        let followed = follower.memos().unwrap().follow(&name);
        hint().await;
        let held = hold(&engine, exclusive("a")).await;
        for number in 1..4 {
            write(&engine, &held, (number, memo(b"x", KEEP)), HoldAfter::Keep).await.unwrap();
            hint().await;
        }
        proxy.reset();
        // The watches are set again.
        hint().await;
        write(&engine, &held, (4, memo(b"x", KEEP)), HoldAfter::Keep).await.unwrap();
        hint().await;
        Inspect::break_hold(&*operator, &name, held.1.token.number, false).await.unwrap();
        hint().await;
        assert!(!read(&follower, "a").await.unwrap().unwrap().is_held);
        drop(followed);
    });
}

/// With `layout=plain` nothing in the name of a node says whose it is.
#[test]
fn the_plain_layout_has_no_memos_and_says_why() {
    let rig = Rig::plain();
    let locks = rig.locks();
    for error in [
        locks.read_memo_blocking("a").unwrap_err(),
        acquire(&locks, "a").release_with_memo_blocking(memo(b"x", KEEP)).unwrap_err(),
    ] {
        assert!(error.is_misconfigured() && error.to_string().contains("layout=plain"), "{error}");
    }
    acquire(&locks, "a").release_blocking().unwrap();
}

/// A memo is no claim: other programs' queues and the lists of operators do not contain it.
#[test]
fn memos_are_in_no_queue_and_in_no_list() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(store(&engine, exclusive("a"), b"x", KEEP));
    assert!(rig.run(Inspect::list(&*engine, "")).unwrap().is_empty());
    let node = raw.enqueue("/locks/a");
    assert_eq!(raw.children("/locks/a").len(), 1, "{node}");
    assert_eq!(raw.children("/locks"), ["%memos", "a"]);
    raw.create("/locks/%memos/theirs", b"", Kind::Persistent);
    assert_eq!(rig.run(read(&engine, "a")).unwrap().unwrap().bytes, b"x");
}

//! Memos: foreign data, failures in the middle of a write, the end of memos, and followers.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Answer, Claim, ClaimId, Engine, EngineError, Env, Fault, Grant, HoldAfter, How, Inspect, Lineage,
    MIN_MEMO_KEEP, Memo, MemoKind, MemoVersion, MemoWrite, Name, NewMemo, Notification, Token, Written,
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    raw_client::{Kind, RawClient, text},
    relay::Relay,
    rig::{PATIENCE, Rig, acquire, exclusive, local, release_of},
};

/// Far longer than a test takes.
const KEEP: Duration = Duration::from_secs(600);
/// The beginning of a step that deletes a node, whatever its version, up to the path.
const DELETE_STEP: [u8; 9] = [0, 0, 0, 2, 0, 0xff, 0xff, 0xff, 0xff];

fn memo(bytes: &[u8], keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

/// A hold of this claim.
async fn hold(engine: &ZookeeperEngine, claim: Claim) -> (Claim, Grant) {
    match engine.claim(&claim, How::Create).await.unwrap() {
        Answer::Held(grant) => (claim, grant),
        answer => panic!("it is free: {answer:?}"),
    }
}

async fn write(
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

async fn read(engine: &ZookeeperEngine, name: &str) -> Result<Option<Memo>, EngineError> {
    engine.memos().unwrap().read(&Name::new(name).unwrap()).await
}

/// Stores a memo and releases the name.
async fn store(engine: &ZookeeperEngine, claim: Claim, bytes: &[u8], keep: Duration) {
    let held = hold(engine, claim).await;
    let written = write(engine, &held, (1, memo(bytes, keep)), HoldAfter::Release).await;
    assert_eq!(written.unwrap(), Written::Done);
}

/// A client whose requests a relay can stop.
fn relayed(rig: &Rig) -> (Relay, Arc<ZookeeperEngine>) {
    let relay = Relay::start(rig.server.port());
    let config = Config::new(vec![local(relay.port)]);
    (relay, Arc::new(ZookeeperEngine::new(config, &Env::system())))
}

/// A claim whose id makes its client look at other memos, from the first one on, if it writes a new memo.
fn sweeping(name: &str) -> Claim {
    let claim = exclusive(name);
    let mut id = claim.id.0;
    id[..2].fill(0);
    Claim { id: ClaimId(id), ..claim }
}

/// Names whose memos are in one directory.
fn names_of_one_directory() -> impl Iterator<Item = String> {
    let hash = |name: &String| {
        let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        name.bytes().fold(2_166_136_261, step) % 256
    };
    (0..).map(|number| format!("n{number}")).filter(move |name| hash(name) == 7)
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

#[test]
fn an_ended_memo_of_a_dead_client_is_deleted_by_others() {
    let rig = Rig::new();
    let mut raw = RawClient::as_super(rig.server.port());
    let names: Vec<String> = names_of_one_directory().take(3).collect();
    let [dead, live, new] = &names[..] else { unreachable!() };
    let keep = Duration::from_millis(1100);
    rig.run(async {
        // Its client deletes no memo that ends so late, because it is dropped.
        store(&rig.engine(), exclusive(dead), b"x", keep).await;
        let engine = rig.engine();
        store(&engine, exclusive(live), b"x", KEEP).await;
        while read(&engine, dead).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(raw.memos().len(), 2, "only new memos delete it");
    rig.run(async { store(&rig.engine(), sweeping(new), b"x", KEEP).await });
    let mut left = raw.memos();
    left.sort();
    assert!(left.len() == 2 && !left.iter().any(|path| path.ends_with(dead.as_str())), "{left:?}");
}

#[test]
fn a_client_deletes_its_memos_after_their_end() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(async {
        store(&engine, exclusive("at-once"), b"x", MIN_MEMO_KEEP).await;
        store(&engine, exclusive("later"), b"x", Duration::from_millis(1100)).await;
        store(&engine, exclusive("much-later"), b"x", KEEP).await;
    });
    let much_later = raw.memos().into_iter().find(|path| path.ends_with("/much-later")).unwrap();
    rig.until("the ended memos are deleted", || raw.memos() == [much_later.as_str()]);
}

/// R28: the number of an ended memo tells late writes as long as its hold lasts.
#[test]
fn an_ended_memo_stays_as_long_as_its_hold() {
    let rig = Rig::new();
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    let names: Vec<String> = names_of_one_directory().take(2).collect();
    let held = rig.run(hold(&engine, exclusive(&names[0])));
    let late = rig.run(async {
        write(&engine, &held, (9, memo(b"x", MIN_MEMO_KEEP)), HoldAfter::Keep).await.unwrap();
        while read(&engine, &names[0]).await.unwrap().is_some() {}
        store(&rig.engine(), sweeping(&names[1]), b"x", KEEP).await;
        write(&engine, &held, (8, memo(b"late", KEEP)), HoldAfter::Keep).await
    });
    assert_eq!(late.unwrap(), Written::Done);
    assert_eq!(raw.memos().len(), 2);
    assert_eq!(rig.run(read(&engine, &names[0])).unwrap(), None, "a late write brings nothing back");
}

/// A client that is about to delete an ended memo is slower than others that delete it and create the next one.
#[test]
fn a_new_memo_is_not_deleted_in_place_of_an_ended_one() {
    let rig = Rig::new();
    let (relay, slow) = relayed(&rig);
    let (engine, mut raw) = (rig.engine(), RawClient::as_super(rig.server.port()));
    rig.run(async {
        let held = hold(&slow, exclusive("a")).await;
        write(&slow, &held, (1, memo(b"old", KEEP)), HoldAfter::Keep).await.unwrap();
        let path = raw.memos().pop().unwrap();
        relay.stop_at([&DELETE_STEP[..], &text(path.as_bytes())].concat());
        raw.delete(&path);
        write(&slow, &held, (2, memo(b"old", MIN_MEMO_KEEP)), HoldAfter::Release).await.unwrap();
        tokio::task::spawn_blocking(relay.stopped()).await.unwrap();
        raw.delete(&path);
        store(&engine, exclusive("a"), b"new", KEEP).await;
        relay.go_on();
        // Behind the deletion, on the same connection.
        let _ = read(&slow, "a").await;
        let memo = read(&engine, "a").await.unwrap().expect("the new memo is not deleted");
        assert_eq!(memo.bytes, b"new");
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

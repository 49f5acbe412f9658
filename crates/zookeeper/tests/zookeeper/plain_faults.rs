//! `layout=plain` under faults: lost answers, dead sessions, nodes that never go, killed programs.

use std::time::Duration;

use leasehold_core::{Answer, Broken, Claim, Engine, How, Released};

use crate::{
    raw_client::{Kind, LONG_SESSION_MILLIS, RawClient},
    rig::{PATIENCE, Rig, acquire, release_of, release_until_certain},
    sessions::claim_undelivered,
};

/// The shortest session of the tests' servers is a second.
const SHORT_SESSION_MILLIS: u32 = 1500;
/// The number of nodes of a dead session.
const DEAD_NODES: usize = 1000;

/// The data of a node of this claim.
fn record(claim: &Claim) -> Vec<u8> {
    format!("leasehold 2 claim 30000 {} me@here", claim.id).into_bytes()
}

/// R9: a request that was sent before the release of its claim may be applied after it.
#[test]
fn a_late_node_of_a_released_claim_is_found_by_its_data() {
    let rig = Rig::plain();
    let (proxy, engine) = rig.proxied();
    let (first, claim) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        claim_undelivered(&engine, &proxy, [&first, &claim]).await;
        proxy.reset();
        let answer = tokio::time::timeout(PATIENCE, release_until_certain(&engine, &claim)).await.unwrap();
        assert!(matches!(answer[..], [Released::NotThere]), "{answer:?}");
    });
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    let late = raw.create("/locks/a/lock-", &record(&claim), Kind::EphemeralSequential);
    let other = raw.create("/locks/a/lock-", &record(&rig.claim("a")), Kind::EphemeralSequential);
    rig.until("it is deleted", || !rig.nodes().contains(&late));
    assert!(rig.nodes().contains(&other), "a node of another claim stays");
    rig.run(engine.release(&release_of(&first)));
}

/// F49: the server applies a request after its claim was made again, so the claim has two nodes. It does not wait for
/// its own other node.
#[test]
fn a_claim_does_not_wait_for_its_own_late_node() {
    let rig = Rig::plain();
    let (proxy, engine) = rig.proxied();
    let (first, claim) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        claim_undelivered(&engine, &proxy, [&first, &claim]).await;
        proxy.reset();
    });
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    let late = raw.create("/locks/a/lock-", &record(&claim), Kind::EphemeralSequential);
    rig.run(async {
        while !matches!(engine.release(&release_of(&first)).await[..], [Released::Freed | Released::NotThere])
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let granted = async {
            while !matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, granted).await.expect("no other claim is ahead");
    });
    assert!(!rig.nodes().contains(&late), "{:?}", rig.nodes());
    rig.run(engine.release(&release_of(&claim)));
}

/// The nodes of killed programs last until the end of their sessions. Our claim waits for the last one, and does not
/// read each of them.
#[test]
fn a_directory_full_of_nodes_of_dead_sessions_becomes_free() {
    let rig = Rig::plain();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS / 2);
    (0..DEAD_NODES).for_each(|_| drop(raw.enqueue("/locks/a")));
    assert_eq!(rig.show("a").waiters.len(), DEAD_NODES - 1);
    drop(raw);
    let before = rig.requests();
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    acquire(&locks, "a").release_blocking().unwrap();
    let requests = rig.requests() - before;
    assert!((requests as usize) < DEAD_NODES / 10, "{requests} requests");
}

/// A node that a program made persistent by mistake never goes. The waiters are told, also those farther behind, and an
/// operator sees the node and ends it.
#[test]
fn a_persistent_node_is_reported_and_broken() {
    for rig in [Rig::plain(), Rig::new()] {
        let (locks, engine) = (rig.locks(), rig.engine());
        acquire(&locks, "a").release_blocking().unwrap();
        let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
        raw.create("/locks/a/lock-", b"", Kind::PersistentSequential);
        let (near, far) = (rig.claim("a"), rig.claim("a"));
        rig.run(async {
            for claim in [&near, &far, &near] {
                let answer = engine.claim(claim, How::Create).await;
                let Ok(Answer::Waiting(hint)) = answer else { panic!("{answer:?}") };
                assert!(hint.obstacle.is_some_and(|text| text.contains("break --force")), "{hint:?}");
            }
        });
        let request = locks.mutex("a").blocking();
        for error in [
            request.try_acquire().unwrap_err(),
            request.acquire_within(Duration::from_millis(200)).unwrap_err(),
        ] {
            assert!(error.is_misconfigured() && error.to_string().contains("persistent"), "{error}");
        }
        let view = rig.show("a");
        let holder = &view.holders[0];
        assert!(holder.foreign && !holder.of_session && holder.remaining.is_none(), "{holder:?}");
        let token = holder.token.unwrap();
        assert!(rig.run(locks.break_hold("a", token, false)).unwrap_err().is_denied());
        assert_eq!(rig.run(locks.break_hold("a", token, true)).unwrap(), Broken::Done);
        rig.run(async {
            while !matches!(engine.claim(&near, How::Ask).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The hold of `near` must not be broken.
            let answer = engine.claim(&far, How::Ask).await;
            assert!(matches!(&answer, Ok(Answer::Waiting(hint)) if hint.obstacle.is_none()), "{answer:?}");
            engine.release(&release_of(&near)).await;
            while !matches!(engine.claim(&far, How::Ask).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            engine.release(&release_of(&far)).await;
        });
    }
}

/// While a program ahead of the persistent node holds, nothing is to be broken. When that program has ended, the next
/// question of the waiter finds the obstacle.
#[test]
fn a_persistent_node_that_becomes_the_first_is_reported() {
    for rig in [Rig::plain(), Rig::new()] {
        let (engine, holder, waiter) = (rig.engine(), rig.claim("a"), rig.claim("a"));
        let answer = rig.run(engine.claim(&holder, How::Create));
        assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
        let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
        let persistent = raw.create("/locks/a/lock-", b"", Kind::PersistentSequential);
        rig.run(async {
            for how in [How::Create, How::Ask] {
                let answer = engine.claim(&waiter, how).await;
                assert!(
                    matches!(&answer, Ok(Answer::Waiting(hint)) if hint.obstacle.is_none()),
                    "{answer:?}"
                );
            }
            engine.release(&release_of(&holder)).await;
            for _ in 0..2 {
                let answer = engine.claim(&waiter, How::Ask).await;
                assert!(
                    matches!(&answer, Ok(Answer::Waiting(hint)) if hint.obstacle.is_some()),
                    "{answer:?}"
                );
            }
            raw.delete(&persistent);
            while !matches!(engine.claim(&waiter, How::Ask).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            engine.release(&release_of(&waiter)).await;
        });
    }
}

/// A live program is no obstacle.
#[test]
fn an_ephemeral_node_is_no_obstacle() {
    let rig = Rig::plain();
    let (locks, engine) = (rig.locks(), rig.engine());
    acquire(&locks, "a").release_blocking().unwrap();
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    raw.enqueue("/locks/a");
    let claim = rig.claim("a");
    let answer = rig.run(engine.claim(&claim, How::Create));
    assert!(matches!(answer, Ok(Answer::Waiting(hint)) if hint.obstacle.is_none()), "{answer:?}");
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    rig.run(engine.release(&release_of(&claim)));
}

/// A program written by hand is killed while it holds, and while it waits between two claims of ours. Our process is
/// killed while it holds, and a program written by hand waits.
#[test]
fn killed_programs_free_the_queue_in_both_directions() {
    let rig = Rig::plain();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    let mut dies = RawClient::new(rig.server.port(), SHORT_SESSION_MILLIS);
    dies.lock("/locks/a");
    drop(dies);
    let guard = acquire(&locks, "a");
    let mut dies = RawClient::new(rig.server.port(), SHORT_SESSION_MILLIS);
    dies.enqueue("/locks/a");
    let (engine, claim) = (rig.engine(), rig.claim("a"));
    let answer = rig.run(engine.claim(&claim, How::Create));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    drop(dies);
    // The end of the waiter ahead grants nothing, because our holder is still ahead.
    rig.until("the waiter is gone", || rig.nodes().len() == 2);
    let answer = rig.run(engine.claim(&claim, How::Ask));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    guard.release_blocking().unwrap();
    rig.run(async {
        while !matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Held(_))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        engine.release(&release_of(&claim)).await;
    });
    // The tasks of the holder end with their runtime, as when its process is killed.
    let dying_runtime = tokio::runtime::Runtime::new().unwrap();
    let (engine, claim) = (rig.engine(), Claim { ttl: Duration::from_secs(2), ..rig.claim("a") });
    let answer = dying_runtime.block_on(engine.claim(&claim, How::Create));
    assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
    let port = rig.server.port();
    let waiter = std::thread::spawn(move || {
        let mut theirs = RawClient::new(port, LONG_SESSION_MILLIS);
        let node = theirs.lock("/locks/a");
        theirs.delete(&node);
    });
    rig.until("it waits", || rig.nodes().len() == 2);
    drop(dying_runtime);
    waiter.join().unwrap();
}

/// F53: the counter of the directory starts again without a moment at which the directory is missing. The directory of
/// `path=` cannot be created again, because the lineage of the tokens is made from it.
#[test]
fn a_nearly_used_up_counter_of_a_persistent_directory_restarts() {
    let mut rig = Rig::plain();
    let at_path = |rig: &Rig| rig.locks_with(|config| config.path("/orders").unwrap());
    let first = acquire(&rig.locks(), "a");
    let token = first.token();
    first.release_blocking().unwrap();
    acquire(&at_path(&rig), "orders").release_blocking().unwrap();
    for path in ["/locks/a", "/orders"] {
        rig.server.kill();
        rig.server.set_child_counter(path, i32::MAX - (1 << 20));
        rig.server.restart();
    }
    let next = acquire(&rig.locks(), "a");
    assert_eq!(rig.nodes(), ["/locks/a/lock-0000000000"]);
    assert!(next.token().number > token.number && next.token().lineage == token.lineage);
    next.release_blocking().unwrap();
    let error = at_path(&rig).mutex("orders").blocking().acquire_within(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("nearly used up: stop all programs"), "{error}");
    assert_eq!(rig.nodes(), [""; 0]);
}

/// The directory of another program keeps its data and its access list when its counter starts again. If that is not
/// possible, the directory stays as it is.
#[test]
fn a_directory_of_another_program_is_as_before_when_its_counter_restarts() {
    const THEIRS: &str = "digest:theirs:AAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let mut rig = Rig::plain();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    for (name, our_rights) in [("full", "cdrwa"), ("few", "crd"), ("mixed", "cdrwa")] {
        let rights = format!("world:anyone:{our_rights},{THEIRS}:rw");
        rig.server.command(&["create", &format!("/locks/{name}"), "theirs", &rights]);
    }
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    raw.create("/locks/mixed/jobs", b"", Kind::Persistent);
    drop(raw);
    rig.server.kill();
    for name in ["full", "few", "mixed"] {
        rig.server.set_child_counter(&format!("/locks/{name}"), i32::MAX - (1 << 20));
    }
    rig.server.restart();
    for (name, refused) in [("full", None), ("few", Some("stop all programs")), ("mixed", Some("\"jobs\""))] {
        match (rig.locks().mutex(name).blocking().acquire_within(PATIENCE), refused) {
            (Ok(guard), None) => {
                assert_eq!(rig.nodes(), [format!("/locks/{name}/lock-0000000000")]);
                guard.release_blocking().unwrap();
            }
            (Err(error), Some(why)) => {
                assert!(error.to_string().contains("nearly used up"), "{name}: {error}");
                assert!(error.to_string().contains(why), "{name}: {error}");
            }
            (other, _) => panic!("{name}: {other:?}"),
        }
        let path = format!("/locks/{name}");
        let data = rig.server.command(&["get", &path]);
        assert!(data.iter().any(|line| line == "theirs"), "{name}: {data:?}");
    }
    let access_list = rig.server.command(&["getAcl", "/locks/full"]);
    for entry in ["'world,'anyone", ": cdrwa", "'digest,'theirs:AAAAAAAAAAAAAAAAAAAAAAAAAAA=", ": rw"] {
        assert!(access_list.iter().any(|line| line == entry), "{access_list:?}");
    }
}

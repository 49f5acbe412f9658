//! Nodes of other programs in a directory where a claim of ours waits.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, How, Mode, Notification};

use crate::rig::{PATIENCE, Rig};

/// The beginning of a node's name in Curator.
const CURATOR_START: &str = "_c_00000000-0000-0000-0000-000000000001-";

/// A server with an empty directory for this name.
fn with_directory(name: &str) -> Rig {
    let rig = Rig::new();
    // One run of the command creates both, because starting the command takes longest.
    rig.server.command_as_super(&format!("create /locks\ncreate /locks/{name}"));
    rig
}

/// Curator from 5.5 on: a writer acquires the read lock with a node that has the number of its first node, and then
/// releases the write lock.
#[test]
fn a_writer_of_curator_that_downgrades_still_holds() {
    let rig = with_directory("a");
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.server.command(&["create", "-s", &format!("/locks/a/{CURATOR_START}__WRIT__"), "x"]);
    rig.run(async {
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
    });
    rig.server.command(&["create", &format!("/locks/a/{CURATOR_START}__READ__0000000000"), "x"]);
    rig.server.command(&["delete", &format!("/locks/a/{CURATOR_START}__WRIT__0000000000")]);
    rig.run(async {
        let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
        assert!(matches!(&notification[..], [Notification::Recheck { .. }]), "{notification:?}");
        let answer = engine.claim(&claim, How::Ask).await;
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    });
    rig.server.command(&["delete", &format!("/locks/a/{CURATOR_START}__READ__0000000000")]);
    rig.run(async {
        while !matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Held(_))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// A program that gives no other user rights on its nodes.
#[test]
fn a_claim_waits_for_a_node_it_may_not_read() {
    let rig = with_directory("a");
    let engine = rig.engine();
    let node = rig.server.command(&["create", "-s", "/locks/a/x-lock-", "x", "digest:other:abc=:cdrwa"]);
    let node = node.iter().find_map(|line| line.strip_prefix("Created ")).unwrap().to_owned();
    let claim = rig.claim("a");
    let answer = rig.run(engine.claim(&claim, How::Create));
    let Ok(Answer::Waiting(hint)) = answer else { panic!("{answer:?}") };
    assert!(hint.ask_in.is_some(), "no notification will come");
    rig.server.command(&["delete", &node]);
    let answer = rig.run(engine.claim(&claim, How::Ask));
    assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
}

/// A waiter of the right kind is not refused because of a later node of another kind.
#[test]
fn a_newcomer_of_another_kind_ends_no_wait() {
    let rig = Rig::new();
    let engine = rig.engine();
    let mode = Mode::Permits { count: 1, limit: 1 };
    let (holds, waits) = (Claim { mode, ..rig.claim("p") }, Claim { mode, ..rig.claim("p") });
    rig.run(async {
        assert!(matches!(engine.claim(&holds, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.claim(&waits, How::Create).await, Ok(Answer::Waiting(_))));
    });
    rig.server.command(&["create", "-s", "/locks/p/y-lock-", "x"]);
    let answer = rig.run(engine.claim(&waits, How::Ask));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
}

/// The recipe of ZooKeeper's own documentation, written by hand, a leader latch, and a number alone: each of these
/// programs relies on the position of its node in the queue.
#[test]
fn a_node_of_an_unknown_kind_holds_and_waits() {
    for word in ["lock-", "latch-", ""] {
        let rig = with_directory("a");
        let engine = rig.engine();
        let (first, last) = (rig.claim("a"), Claim { mode: Mode::Shared, ..rig.claim("a") });
        rig.server.command(&["create", "-s", &format!("/locks/a/{word}"), "me"]);
        let view = rig.show("a");
        assert_eq!(view.mode, Some(Mode::Exclusive), "{word}");
        let holder = &view.holders[0];
        assert_eq!(
            (&*holder.owner, &*holder.id, holder.foreign),
            ("unknown kind", &*format!("{word}0000000000"), true)
        );
        rig.run(async {
            assert!(matches!(engine.claim(&first, How::Create).await, Ok(Answer::Waiting(_))), "{word}");
        });
        // This node is between our two nodes.
        rig.server.command(&["create", "-s", &format!("/locks/a/{word}"), "me"]);
        rig.run(async {
            assert!(matches!(engine.claim(&last, How::Create).await, Ok(Answer::Waiting(_))), "{word}");
        });
        rig.server.command(&["delete", &format!("/locks/a/{word}0000000000")]);
        rig.run(async {
            while !matches!(engine.claim(&first, How::Ask).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let answer = engine.claim(&last, How::Ask).await;
            assert!(matches!(answer, Ok(Answer::Waiting(_))), "{word}: {answer:?}");
        });
    }
}

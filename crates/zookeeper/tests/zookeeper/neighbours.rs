//! What other programs put into a directory where a claim of ours waits.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, How, Mode, Notification};

use crate::rig::{PATIENCE, Rig};

/// What stands before the words of a node of Curator's.
const CURATOR: &str = "_c_00000000-0000-0000-0000-000000000001-";

fn with_directory(name: &str) -> Rig {
    let rig = Rig::new();
    // By one run of the command, which takes longer to start than both.
    rig.server.command_as_super(&format!("create /locks\ncreate /locks/{name}"));
    rig
}

/// Curator from 5.5 on: who writes acquires the read lock, by a node with the number of its first, and releases the other one.
#[test]
fn a_writer_of_curator_that_downgrades_still_holds() {
    let rig = with_directory("a");
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.server.command(&["create", "-s", &format!("/locks/a/{CURATOR}__WRIT__"), "x"]);
    rig.run(async {
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
    });
    rig.server.command(&["create", &format!("/locks/a/{CURATOR}__READ__0000000000"), "x"]);
    rig.server.command(&["delete", &format!("/locks/a/{CURATOR}__WRIT__0000000000")]);
    rig.run(async {
        let notification = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
        assert!(matches!(&notification[..], [Notification::Recheck { .. }]), "{notification:?}");
        let asked = engine.claim(&claim, How::Ask).await;
        assert!(matches!(asked, Ok(Answer::Waiting(_))), "{asked:?}");
    });
    rig.server.command(&["delete", &format!("/locks/a/{CURATOR}__READ__0000000000")]);
    rig.run(async {
        while !matches!(engine.claim(&claim, How::Ask).await, Ok(Answer::Held(_))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// A program that keeps what it makes to itself.
#[test]
fn a_claim_waits_for_a_node_it_may_not_read() {
    let rig = with_directory("a");
    let engine = rig.engine();
    let node = rig.server.command(&["create", "-s", "/locks/a/x-lock-", "x", "digest:other:abc=:cdrwa"]);
    let node = node.iter().find_map(|line| line.strip_prefix("Created ")).unwrap().to_owned();
    let claim = rig.claim("a");
    let asked = rig.run(engine.claim(&claim, How::Create));
    let Ok(Answer::Waiting(hint)) = asked else { panic!("{asked:?}") };
    assert!(hint.ask_in.is_some(), "nobody will ring");
    rig.server.command(&["delete", &node]);
    let asked = rig.run(engine.claim(&claim, How::Ask));
    assert!(matches!(asked, Ok(Answer::Held(_))), "{asked:?}");
}

/// Who stands in line rightly is not refused because of somebody who is not.
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
    let asked = rig.run(engine.claim(&waits, How::Ask));
    assert!(matches!(asked, Ok(Answer::Waiting(_))), "{asked:?}");
}

/// The recipe of ZooKeeper's own documentation, as people write it by hand, a leader latch, and a number alone: whoever made such a
/// node takes it for a place in line.
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
        // Behind ours, and before the other one of ours.
        rig.server.command(&["create", "-s", &format!("/locks/a/{word}"), "me"]);
        rig.run(async {
            assert!(matches!(engine.claim(&last, How::Create).await, Ok(Answer::Waiting(_))), "{word}");
        });
        rig.server.command(&["delete", &format!("/locks/a/{word}0000000000")]);
        rig.run(async {
            while !matches!(engine.claim(&first, How::Ask).await, Ok(Answer::Held(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let asked = engine.claim(&last, How::Ask).await;
            assert!(matches!(asked, Ok(Answer::Waiting(_))), "{word}: {asked:?}");
        });
    }
}

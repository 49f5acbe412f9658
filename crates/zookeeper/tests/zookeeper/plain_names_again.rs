//! `layout=plain` where the name of a node comes again: the directory is deleted and created again, so that its counter
//! starts again, and a node of another program gets the name that the node of a claim had.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, How, Loss, Notification, Released};
use leasehold_testkit::server::Proxy;
use leasehold_zookeeper::ZookeeperEngine;

use crate::{
    raw_client::{Kind, LONG_SESSION_MILLIS, RawClient},
    rig::{PATIENCE, Rig, acquire, release_of, release_until_certain},
};

const DIRECTORY: &str = "/locks/a";

/// A client that can be cut off. It keeps its session when a claim ends.
fn client(rig: &Rig) -> (Proxy, Arc<ZookeeperEngine>) {
    let (proxy, engine) = rig.proxied();
    for _ in 0..2 {
        let claim = rig.claim("warm");
        rig.run(async {
            expect_held(&engine, &claim).await;
            engine.release(&release_of(&claim)).await;
        });
    }
    (proxy, engine)
}

/// Deletes the directory with all its nodes, creates it again, and takes the lock as a program written by hand whose
/// node has the name of `node`.
fn take_name_again(raw: &mut RawClient, node: &str) {
    for name in raw.children(DIRECTORY) {
        raw.delete(&format!("{DIRECTORY}/{name}"));
    }
    raw.delete(DIRECTORY);
    raw.create(DIRECTORY, b"", Kind::Persistent);
    while raw.enqueue(DIRECTORY) != node {
        let names = raw.children(DIRECTORY);
        names.iter().for_each(|name| raw.delete(&format!("{DIRECTORY}/{name}")));
    }
}

/// Asks for the claim until an answer comes.
async fn ask(engine: &ZookeeperEngine, claim: &Claim) -> Answer {
    let asked = async {
        loop {
            match engine.claim(claim, How::Ask).await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the client connects again")
}

async fn expect_held(engine: &ZookeeperEngine, claim: &Claim) {
    let answer = engine.claim(claim, How::Create).await;
    assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
}

#[test]
fn the_name_of_a_waiter_that_comes_again_grants_it_nothing() {
    let rig = Rig::plain();
    let (proxy, engine) = client(&rig);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    raw.enqueue(DIRECTORY);
    let waiter = rig.claim("a");
    let answer = rig.run(engine.claim(&waiter, How::Create));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    let node = rig.nodes().into_iter().max().unwrap();
    proxy.block();
    take_name_again(&mut raw, &node);
    proxy.unblock();
    let answer = rig.run(ask(&engine, &waiter));
    assert!(matches!(answer, Answer::Gone), "the other program holds: {answer:?}");
    let released = rig.run(release_until_certain(&engine, &waiter));
    assert!(matches!(released[..], [Released::NotThere]), "{released:?}");
    assert_eq!(rig.nodes(), [node]);
}

#[test]
fn the_name_of_a_hold_that_comes_again_is_no_hold() {
    // The loss is found by the watch of the hold, by a question, or only by the release.
    for found_by in ["watch", "question", "release"] {
        let rig = Rig::plain();
        let (proxy, engine) = client(&rig);
        let claim = rig.claim("a");
        rig.run(expect_held(&engine, &claim));
        let [node] = &rig.nodes()[..] else { panic!("{:?}", rig.nodes()) };
        let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
        proxy.block();
        take_name_again(&mut raw, node);
        proxy.unblock();
        rig.run(async {
            if found_by == "watch" {
                let is_loss = |notification: &Notification| {
                    matches!(notification, Notification::Lost { id, loss: Loss::Gone, .. } if *id == claim.id)
                };
                let reported = async { while !engine.notifications().await.iter().any(is_loss) {} };
                tokio::time::timeout(PATIENCE, reported).await.expect("the loss is reported");
            }
            if found_by == "question" {
                let answer = ask(&engine, &claim).await;
                assert!(matches!(answer, Answer::Gone), "the other program holds: {answer:?}");
            }
            let released = release_until_certain(&engine, &claim).await;
            assert!(matches!(released[..], [Released::NotThere]), "{found_by}: {released:?}");
        });
        assert_eq!(rig.nodes(), std::slice::from_ref(node), "{found_by}");
    }
}

/// The answer to a release is lost, and the release is sent again.
#[test]
fn a_repeated_release_deletes_no_node_of_another_program() {
    let rig = Rig::plain();
    let (proxy, engine) = client(&rig);
    let claim = rig.claim("a");
    rig.run(expect_held(&engine, &claim));
    let [node] = &rig.nodes()[..] else { panic!("{:?}", rig.nodes()) };
    proxy.hold_answers();
    rig.run(async {
        let lost =
            tokio::time::timeout(Duration::from_millis(300), engine.release(&release_of(&claim))).await;
        assert!(lost.is_err(), "no answer arrives: {lost:?}");
    });
    rig.until("the release is applied", || rig.nodes().is_empty());
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    take_name_again(&mut raw, node);
    proxy.drop_connections();
    let released = rig.run(release_until_certain(&engine, &claim));
    assert!(matches!(released[..], [Released::NotThere]), "{released:?}");
    assert_eq!(rig.nodes(), std::slice::from_ref(node));
}

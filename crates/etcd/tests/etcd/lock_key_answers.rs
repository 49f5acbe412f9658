//! `layout=key`: answers that are lost, or that arrive after a report of the server.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, Grant, How, Notification, Released};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::server::Proxy;

use crate::{
    late_requests::applied_proposals,
    rig::{PATIENCE, Rig, first_token, release_of},
};

/// How long an answer has to be missing until the test looks at the server.
const A_MOMENT: Duration = Duration::from_millis(20);
/// How long a pushed grant lasts that no request confirms.
const CLAIM_TIME: Duration = Duration::from_millis(100);

fn queue_keys(rig: &Rig) -> Vec<String> {
    rig.keys().into_iter().filter(|key| key.contains("/queue/")).collect()
}

fn release(rig: &Rig, engine: &EtcdEngine, claim: &Claim) {
    rig.until("the claim is released", || {
        !matches!(rig.run(engine.release(&release_of(claim)))[..], [Released::Unknown(_)])
    });
}

/// Waits for the pushed grant of this claim.
async fn pushed_grant(engine: &EtcdEngine, claim: &Claim) -> Grant {
    let granted = async {
        loop {
            for notification in engine.notifications().await {
                match notification {
                    Notification::Granted { id, grant, .. } if id == claim.id => return grant,
                    _ => {}
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, granted).await.expect("the claim is granted")
}

/// Asks for a lapsed claim until its queue key is created again, while the answer is held back.
fn queue_again_without_answer(rig: &Rig, proxy: &Proxy, engine: &Arc<EtcdEngine>, claim: &Claim) {
    loop {
        // The client has the answer to its earlier deletion as soon as it has the answer to a later request.
        let other = rig.claim("/b");
        assert!(matches!(rig.run(engine.claim(&other, How::Create)), Ok(Answer::Held(_))));
        assert!(matches!(rig.run(engine.release(&release_of(&other)))[..], [Released::Freed]));
        proxy.hold_answers();
        let (engine, claim) = (Arc::clone(engine), claim.clone());
        let asking = rig.runtime.spawn(async move { engine.claim(&claim, How::Ask).await });
        rig.until("the request is applied", || asking.is_finished() || !queue_keys(rig).is_empty());
        if !asking.is_finished() {
            asking.abort();
            return;
        }
        // The client still recorded the end of the grant, so it sent no request.
        let answer = rig.run(asking).unwrap();
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
        proxy.release_answers();
    }
}

/// The claim gets a new queue key, and its client does not learn its revision.
#[test]
fn a_release_deletes_the_queue_key_that_a_lapsed_claim_created_again() {
    let rig = Rig::with_lock_keys("");
    let (proxy, engine) = rig.proxied();
    let claim = Claim { claim_time: CLAIM_TIME, ..rig.claim("/a") };
    rig.server.command(&["put", "/a", "theirs"]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    rig.server.command(&["del", "/a"]);
    rig.run(pushed_grant(&engine, &claim));
    rig.until("the grant lapses", || rig.keys() == [""; 0]);
    queue_again_without_answer(&rig, &proxy, &engine, &claim);
    proxy.reset();
    release(&rig, &engine, &claim);
    assert_eq!(rig.keys(), [""; 0]);
}

/// The answer to an ask arrives after the server has reported that the lock key is gone, and after the client has
/// created its own.
#[test]
fn an_old_answer_does_not_change_the_token_of_a_pushed_grant() {
    let rig = Rig::with_lock_keys("");
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("/a");
    rig.server.command(&["put", "/a", "theirs"]);
    let (answer, grant) = rig.run(async {
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Waiting(_))));
        proxy.hold_answers();
        let before = applied_proposals(&rig);
        let mut asking = engine.claim(&claim, How::Ask);
        while applied_proposals(&rig) == before {
            let answer = tokio::time::timeout(A_MOMENT, &mut asking).await;
            assert!(answer.is_err(), "the answer is held back: {answer:?}");
        }
        // From here on the ask does not run until the grant is there.
        proxy.release_answers();
        rig.server.command(&["del", "/a"]);
        let grant = pushed_grant(&engine, &claim).await;
        (asking.await, grant)
    });
    let Ok(Answer::Held(answer)) = answer else { panic!("it holds: {answer:?}") };
    let created = rig.server.command(&["get", "/a", "-w", "json"]).join("");
    let created = created.split("\"create_revision\":").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(grant.token.number, first_token(created.parse().unwrap()));
    assert_eq!(answer.token, grant.token);
    release(&rig, &engine, &claim);
}

/// The answer to the request that created the lock key is lost.
#[test]
fn a_lock_key_that_left_its_lease_is_no_hold() {
    let rig = Rig::with_lock_keys("");
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("/a");
    rig.server.command(&["put", "/a", "theirs"]);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    proxy.hold_answers();
    rig.server.command(&["del", "/a"]);
    let asking = {
        let (engine, claim) = (Arc::clone(&engine), claim.clone());
        rig.runtime.spawn(async move { engine.claim(&claim, How::Ask).await })
    };
    rig.until("the lock key is created", || rig.keys().contains(&"/a".to_owned()));
    asking.abort();
    proxy.reset();
    rig.server.command(&["put", "/a", "--ignore-value"]);
    rig.until("the server answers", || match rig.run(engine.claim(&claim, How::Ask)) {
        Ok(Answer::Waiting(hint)) => hint.obstacle.is_some(),
        Err(_) => false,
        other => panic!("it waits: {other:?}"),
    });
    release(&rig, &engine, &claim);
    assert_eq!(rig.keys(), [""; 0], "the release deletes its key");
}

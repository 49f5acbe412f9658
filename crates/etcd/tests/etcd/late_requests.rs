//! Requests that arrive after their claim was released: R9.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Fault, How, Mode, Released};
use leasehold_testkit::stopwatch::Stopwatch;

use crate::rig::{Rig, release_of};

/// How many proposals the server has applied, including those that changed nothing.
pub(crate) fn applied_proposals(rig: &Rig) -> u64 {
    let output = rig.server.command(&["endpoint", "status", "-w", "json"]).join("");
    let index = output.split("\"raftAppliedIndex\":").nth(1).unwrap();
    index.split(',').next().unwrap().parse().unwrap()
}

/// Sends a claim on a connection that dies before the request reaches the server.
async fn send_on_dying_connection(
    rig: &Rig,
    proxy: &leasehold_testkit::server::Proxy,
    engine: &dyn Engine,
    claim: &Claim,
    await_reply: bool,
) {
    make_lease(rig, engine).await;
    let mut sent = engine.claim(claim, How::Create);
    hold_back(proxy, &mut sent).await;
    if await_reply {
        proxy.cut_clients();
        assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
    } else {
        drop(sent);
        proxy.cut_clients();
    }
}

/// Makes a lease that the following claims share: the lease of the first lock is not kept, the lease of the second is.
pub(crate) async fn make_lease(rig: &Rig, engine: &dyn Engine) {
    for _ in 0..2 {
        let before = rig.claim("b");
        assert!(matches!(engine.claim(&before, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.release(&release_of(&before)).await[..], [Released::Freed]));
    }
}

/// Sends a request until the proxy holds it back.
pub(crate) async fn hold_back<T: std::fmt::Debug>(
    proxy: &leasehold_testkit::server::Proxy,
    mut request: impl Future<Output = T> + Unpin,
) {
    proxy.hold_requests();
    // The request that the proxy holds back may also be a keep-alive or a health check: after some time both have been
    // sent.
    let mut awaited_requests = 2;
    while awaited_requests > 0 {
        let answer = tokio::time::timeout(Duration::from_millis(50), &mut request).await;
        assert!(answer.is_err(), "the request is in flight: {answer:?}");
        awaited_requests -= usize::from(proxy.holds_a_request());
    }
}

/// How often a request is sent until one arrives late: the server drops many when their connection ends.
pub(crate) const TRIES: usize = 60;
/// The longest time that a late request takes to arrive, by the time that this machine gives to the test.
const ARRIVAL: Duration = Duration::from_millis(200);

/// Waits until the requests that the proxy let go arrive, as `arrived` reports, or cannot arrive any more.
pub(crate) fn await_arrival(arrived: impl Fn() -> bool) -> bool {
    let watch = Stopwatch::start();
    loop {
        if arrived() {
            return true;
        }
        if watch.given() > ARRIVAL {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_claim_whose_connection_died_may_still_arrive() {
    let rig = Rig::new();
    let arrived = (0..TRIES).any(|_| {
        let (proxy, engine) = rig.proxied();
        let claim = rig.claim("a");
        rig.run(send_on_dying_connection(&rig, &proxy, &*engine, &claim, true));
        assert_eq!(rig.keys(), [""; 0]);
        proxy.release_held();
        let arrived = await_arrival(|| !rig.keys().is_empty());
        // A repeated claim finds the key of the late request, and so does the release.
        assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Held(_))));
        assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Freed]));
        arrived
    });
    assert!(arrived);
}

#[test]
fn a_late_claim_creates_nothing_after_its_release() {
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }];
    release_before_claims_arrive(&Rig::new(), &modes);
}

#[test]
fn a_late_claim_creates_neither_lock_key_nor_queue_key_after_its_release() {
    release_before_claims_arrive(&Rig::with_lock_keys(""), &[Mode::Exclusive]);
}

#[test]
fn a_late_candidate_creates_nothing_after_its_release() {
    release_before_claims_arrive(&Rig::with_elections(), &[Mode::Exclusive]);
}

fn release_before_claims_arrive(rig: &Rig, modes: &[Mode]) {
    let mut arrived = 0;
    for (round, &mode) in (0..TRIES).zip(modes.iter().cycle()) {
        if round >= 6 && arrived > 1 {
            return;
        }
        let (proxy, engine) = rig.proxied();
        let claim = Claim { mode, ..rig.claim("a") };
        rig.run(async {
            send_on_dying_connection(rig, &proxy, &*engine, &claim, round != 0).await;
            let released = loop {
                match &engine.release(&release_of(&claim)).await[..] {
                    [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                    [certain] => break format!("{certain:?}"),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(released, "NotThere");
            let before = applied_proposals(rig);
            proxy.release_held();
            arrived += usize::from(await_arrival(|| applied_proposals(rig) > before));
            assert_eq!(rig.keys(), [""; 0], "{mode}");
            // Other claims on the lease are not affected by the raised epoch.
            let next = rig.claim("a");
            assert!(matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))));
            assert!(matches!(engine.release(&release_of(&next)).await[..], [Released::Freed]));
        });
    }
    panic!("of {TRIES} claims {arrived} arrived: too few to say anything");
}

/// The deletion of a hold that is released arrives when the next claim of the client holds the name.
#[test]
fn a_late_deletion_does_not_delete_the_key_of_a_later_claim() {
    let rig = Rig::new();
    let mut arrived = 0;
    for round in 0..TRIES {
        if arrived > 1 {
            return;
        }
        let (proxy, engine) = rig.proxied();
        let (first, next) = (rig.claim("a"), rig.claim("a"));
        rig.run(async {
            make_lease(&rig, &*engine).await;
            assert!(matches!(engine.claim(&first, How::Create).await, Ok(Answer::Held(_))));
            let releases = release_of(&first);
            let mut sent = engine.release(&releases);
            hold_back(&proxy, &mut sent).await;
            if round % 2 == 0 {
                proxy.cut_clients();
                let released = sent.await;
                assert!(matches!(released[..], [Released::Unknown(_)]), "{released:?}");
            } else {
                drop(sent);
                proxy.cut_clients();
            }
            while matches!(engine.release(&releases).await[..], [Released::Unknown(_)]) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(rig.keys(), [""; 0], "the repeated release deleted it");
            assert!(matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))));
            let (held, before) = (rig.keys(), applied_proposals(&rig));
            proxy.release_held();
            arrived += usize::from(await_arrival(|| applied_proposals(&rig) > before));
            assert_eq!(rig.keys(), held);
            assert!(matches!(engine.release(&release_of(&next)).await[..], [Released::Freed]));
        });
    }
    panic!("of {TRIES} deletions {arrived} arrived: too few to say anything");
}

/// An operator who deletes foreign keys blocks no client.
#[test]
fn a_deleted_epoch_key_is_detected() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("a");
    rig.run(async {
        send_on_dying_connection(&rig, &proxy, &*engine, &claim, true).await;
        while matches!(engine.release(&release_of(&claim)).await[..], [Released::Unknown(_)]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            rig.server.command(&["get", "leasehold/", "--prefix", "--keys-only"]).len(),
            2,
            "one key: its name and an empty line"
        );
        rig.server.command(&["del", "leasehold/", "--prefix"]);
        let next = rig.claim("a");
        assert!(matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))));
    });
}

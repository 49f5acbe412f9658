//! Requests that arrive after their claim was released: R9.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Fault, How, Mode, Released};
use leasehold_testkit::stopwatch::Stopwatch;

use crate::rig::{Rig, release_of};

/// How many changes the server has applied, also those that changed nothing.
fn applied(rig: &Rig) -> u64 {
    let output = rig.server.command(&["endpoint", "status", "-w", "json"]).join("");
    let index = output.split("\"raftAppliedIndex\":").nth(1).unwrap();
    index.split(',').next().unwrap().parse().unwrap()
}

/// A claim half sent on a connection that dies.
async fn half_sent(
    rig: &Rig,
    proxy: &leasehold_testkit::server::Proxy,
    engine: &dyn Engine,
    claim: &Claim,
    handler: bool,
) {
    // The lease of a first lock is not kept for the next.
    for _ in 0..2 {
        let before = rig.claim("b");
        assert!(matches!(engine.claim(&before, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(engine.release(&release_of(&before)).await[..], [Released::Freed]));
    }
    proxy.hold_requests();
    let mut sent = engine.claim(claim, How::Create);
    // What is held may also be a sign of life: both have left when some time has passed.
    let mut more = 2;
    while more > 0 {
        let came = tokio::time::timeout(Duration::from_millis(50), &mut sent).await;
        assert!(came.is_err(), "it is under way: {came:?}");
        more -= usize::from(proxy.holds_a_request());
    }
    if handler {
        proxy.cut_clients();
        assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
    } else {
        drop(sent);
        proxy.cut_clients();
    }
}

/// How often a claim is sent into the void until one of them arrives: the server gives up many when their connection ends.
const TRIES: usize = 60;
/// How long one that arrives takes at most, on a machine that gives the time.
const ARRIVAL: Duration = Duration::from_millis(200);

/// Waits until what was let go arrives, as `arrived` tells, or does not any more.
fn arrives(arrived: impl Fn() -> bool) -> bool {
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
        rig.run(half_sent(&rig, &proxy, &*engine, &claim, true));
        assert_eq!(rig.keys(), [""; 0]);
        proxy.let_go();
        let arrived = arrives(|| !rig.keys().is_empty());
        // It is found by asking, and by its release.
        assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Held(_))));
        assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Freed]));
        arrived
    });
    assert!(arrived);
}

#[test]
fn a_late_claim_creates_nothing_after_its_release() {
    let rig = Rig::new();
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }];
    let mut arrived = 0;
    for (round, mode) in (0..TRIES).zip(modes.into_iter().cycle()) {
        if round >= 6 && arrived > 1 {
            return;
        }
        let (proxy, engine) = rig.proxied();
        let claim = Claim { mode, ..rig.claim("a") };
        rig.run(async {
            half_sent(&rig, &proxy, &*engine, &claim, round != 0).await;
            let released = loop {
                match &engine.release(&release_of(&claim)).await[..] {
                    [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                    [certain] => break format!("{certain:?}"),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(released, "NotThere");
            let before = applied(&rig);
            proxy.let_go();
            arrived += usize::from(arrives(|| applied(&rig) > before));
            assert_eq!(rig.keys(), [""; 0], "{mode}");
            // Others on the lease are not held up by what was done against it.
            let next = rig.claim("a");
            assert!(matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))));
            assert!(matches!(engine.release(&release_of(&next)).await[..], [Released::Freed]));
        });
    }
    panic!("of {TRIES} claims {arrived} arrived: too few to say anything");
}

/// An operator who clears away what is not theirs holds nobody up.
#[test]
fn a_deleted_epoch_key_is_detected() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let claim = rig.claim("a");
    rig.run(async {
        half_sent(&rig, &proxy, &*engine, &claim, true).await;
        while matches!(engine.release(&release_of(&claim)).await[..], [Released::Unknown(_)]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            rig.server.command(&["get", "leasehold/", "--prefix", "--keys-only"]).len(),
            2,
            "one key, one line"
        );
        rig.server.command(&["del", "leasehold/", "--prefix"]);
        let next = rig.claim("a");
        assert!(matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))));
    });
}

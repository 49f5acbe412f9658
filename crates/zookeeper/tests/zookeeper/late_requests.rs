//! Requests that are given up, lost, or late: what is left of them, and what their errors promise.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, Env, Fault, How, Mode, Notification, Released};
use leasehold_testkit::{
    scenarios::waiter_ahead_gives_up,
    server::{Proxy, ZookeeperEnsemble},
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::rig::{PATIENCE, Rig, ephemerals, exclusive, local, release_of, release_until_certain};

/// R12: after an error that promises that nothing was applied, core sends no release.
#[test]
fn a_certain_error_leaves_no_node() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    for round in 0..200_u64 {
        let mode = Mode::Permits { count: 1, limit: 3 };
        let claim = Claim { mode, may_queue: false, ..rig.claim("p") };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(round * 37 % 6000));
                proxy.reset();
            });
            let answer = rig.run(engine.claim(&claim, How::Create));
            if let Err(error) = &answer
                && error.fault != Fault::Unknown
            {
                let id = claim.id.to_string();
                let left = rig.nodes().into_iter().find(|node| node.contains(&id[..8]));
                assert_eq!(left, None, "{error:?}");
            }
        });
        rig.run(release_until_certain(&engine, &claim));
    }
    assert_eq!(rig.nodes(), [""; 0]);
}

/// The release of the only claim closes its session. Until the answer to the close arrives, no other claim may use the
/// session: unlike other requests, the server applies a close that arrives on an old connection.
#[test]
fn a_late_close_ends_no_session_in_use() {
    let ensemble = ZookeeperEnsemble::start();
    let (ports, leader) = (ensemble.ports(), ensemble.leader());
    let (one, two) = (Proxy::start(ports[(leader + 1) % 3]), Proxy::start(ports[(leader + 2) % 3]));
    two.block();
    let config = Config::new(vec![local(one.port()), local(two.port())]);
    let engine = Arc::new(ZookeeperEngine::new(config, &Env::system()));
    let other = Arc::new(ZookeeperEngine::new(Config::new(vec![local(ports[leader])]), &Env::system()));
    let claim = |name| Claim { ttl: Duration::from_secs(30), ..exclusive(name) };
    let (only, next, rival) = (claim("a"), claim("b"), claim("b"));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let answer = engine.claim(&only, How::Create).await;
        assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
        two.unblock();
        one.hold_requests();
        let limit = Duration::from_secs(10);
        let released = tokio::time::timeout(limit, engine.release(&release_of(&only))).await;
        assert!(
            !matches!(released.as_deref(), Ok([Released::Freed])),
            "its answer cannot come: {released:?}"
        );
        while !matches!(engine.claim(&next, How::Create).await, Ok(Answer::Held(_))) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(matches!(other.claim(&rival, How::Create).await, Ok(Answer::Waiting(_))));
        // From now on no message reaches the client.
        two.hold_answers();
        one.release_held();
        let close_arrives = async {
            let is_there = |node: &String| node.starts_with("/locks/a/");
            while ephemerals(&ensemble.four_letter_command(leader, "dump")).iter().any(is_there) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, close_arrives).await.expect("the close arrives");
        let granted = tokio::time::timeout(Duration::from_secs(2), other.notifications()).await;
        assert!(granted.is_err(), "two clients hold: {granted:?}");
        let answer = other.claim(&rival, How::Ask).await;
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "two clients hold: {answer:?}");
    });
}

/// I7, for a claim that is given up while it enters the queue: in each round at another of its await points.
#[test]
fn a_claim_given_up_and_made_again_is_woken() {
    let rig = Rig::new();
    for polls in 1..16 {
        // Each round has threads and timers of its own, so that the await points are the same.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (engine, other) = (rig.engine(), rig.engine());
            let name = format!("n{polls}");
            let (first, second, warm) =
                (rig.claim(&name), rig.claim(&name), rig.claim(&format!("warm-{polls}")));
            assert!(matches!(other.claim(&first, How::Create).await, Ok(Answer::Held(_))));
            assert!(matches!(engine.claim(&warm, How::Create).await, Ok(Answer::Held(_))));
            {
                let mut claim = engine.claim(&second, How::Create);
                for poll in 0..polls {
                    if poll > 0 {
                        tokio::time::sleep(Duration::from_millis(15)).await;
                    }
                    let is_ready = std::future::poll_fn(|context| {
                        std::task::Poll::Ready(claim.as_mut().poll(context).is_ready())
                    });
                    if is_ready.await {
                        break;
                    }
                }
            }
            let answer = engine.claim(&second, How::Create).await;
            assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
            other.release(&release_of(&first)).await;
            tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
            let answer = engine.claim(&second, How::Ask).await;
            assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
            engine.release(&release_of(&second)).await;
        });
    }
}

/// A program may drop its client in `main`, which has no runtime.
#[test]
fn a_client_dropped_outside_a_runtime_closes_its_sessions() {
    let rig = Rig::new();
    let engine = rig.engine();
    let (one, two) = (rig.claim("a"), rig.claim("b"));
    rig.run(async {
        for claim in [&one, &two] {
            assert!(matches!(engine.claim(claim, How::Create).await, Ok(Answer::Held(_))));
            engine.release(&release_of(claim)).await;
        }
    });
    assert_eq!(rig.sessions(), 1);
    drop(engine);
    rig.until("the session is closed", || rig.sessions() == 0);
}

/// R11: permits that do not fit into one request are not requested, and the other claims of the session are not
/// affected.
#[test]
fn more_permits_than_fit_into_a_request_are_refused() {
    let rig = Rig::new();
    let engine = rig.engine();
    let mode = Mode::Permits { count: 1000, limit: 1000 };
    let (fitting, too_many) =
        (Claim { mode, ..rig.claim("p") }, Claim { mode, ..rig.claim(&"/".repeat(512)) });
    rig.run(async {
        let answer = engine.claim(&fitting, How::Create).await;
        assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
        let error = engine.claim(&too_many, How::Create).await.unwrap_err();
        assert_eq!(error.fault, Fault::Refused, "{error:?}");
        tokio::time::timeout(Duration::from_millis(200), engine.notifications()).await.unwrap_err();
        // To delete a thousand nodes can take a busy server longer than the limit of a request; then the release is
        // sent again.
        let mut released = engine.release(&release_of(&fitting)).await;
        while matches!(released[..], [Released::Unknown(_)]) {
            released = engine.release(&release_of(&fitting)).await;
        }
        assert!(matches!(released[..], [Released::Freed | Released::NotThere]), "{released:?}");
    });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// I1: the node that a waiter watches is deleted, but other nodes are still ahead.
#[test]
fn a_waiter_whose_neighbour_gives_up_does_not_hold() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let (held, leaves, stays) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
    rig.run(async {
        waiter_ahead_gives_up(&*engine, &*other, (&held, &leaves, &stays)).await;
        engine.release(&release_of(&held)).await;
        let notification = tokio::time::timeout(PATIENCE, other.notifications()).await.unwrap();
        assert!(
            matches!(&notification[..], [Notification::Granted { id, .. }] if *id == stays.id),
            "{notification:?}"
        );
        other.release(&release_of(&stays)).await;
    });
}

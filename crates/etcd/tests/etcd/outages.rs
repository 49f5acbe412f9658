//! Servers that are full, stopped or hanging.

use std::time::Duration;

use leasehold_core::{Answer, Engine, Fault, How, Mode, Released};

use crate::rig::{PATIENCE, Rig, SMALL_DATABASE, acquire, release_of};

/// R14: a hold can be released, and a refused claim leaves nothing.
#[test]
fn a_full_database_refuses_claims_and_takes_releases() {
    let rig = Rig::with(&[SMALL_DATABASE]);
    let (locks, engine) = (rig.locks(), rig.engine());
    let guard = acquire(&locks, "a");
    let before = rig.claim("b");
    assert!(matches!(rig.run(engine.claim(&before, How::Create)), Ok(Answer::Held(_))));
    rig.fill();
    let error = locks.mutex("c").blocking().try_acquire().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("full"), "{error}");
    for mode in [Mode::Exclusive, Mode::Permits { count: 1, limit: 2 }] {
        let claim = leasehold_core::Claim { mode, may_queue: false, ..rig.claim("d") };
        assert_eq!(rig.run(engine.claim(&claim, How::Create)).unwrap_err().fault, Fault::Refused);
    }
    guard.release_blocking().unwrap();
    assert!(matches!(rig.run(engine.release(&release_of(&before)))[..], [Released::Freed]));
    let left: Vec<_> = rig.keys().into_iter().filter(|key| !key.starts_with("fill")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_ping_reports_whether_the_server_is_reachable() {
    let mut rig = Rig::with(&[]);
    let locks =
        leasehold_core::Locks::builder(rig.engine()).connect_timeout(Duration::from_millis(500)).build();
    rig.until("the server is reachable", || locks.ping_blocking().is_ok());
    rig.server.kill();
    // A request that is sent before the client has noticed the end of its connection fails in another way.
    rig.until("the server is reported as unreachable", || {
        let error = locks.ping_blocking().unwrap_err();
        error.is_unreachable() && error.to_string().contains("127.0.0.1")
    });
    rig.server.restart();
    rig.until("the server is reachable again", || locks.ping_blocking().is_ok());
    assert_eq!((rig.keys(), rig.leases()), (Vec::new(), 0));
}

/// A client leaves a hanging member within seconds, also for requests in flight.
#[test]
fn a_request_to_a_member_that_hangs_ends_with_its_connection() {
    let rig = Rig::new();
    let engine = rig.engine();
    let (held, next) = (rig.claim("a"), rig.claim("b"));
    rig.run(async {
        assert!(matches!(engine.claim(&held, How::Create).await, Ok(Answer::Held(_))));
        rig.server.pause();
        // The threads of the server stop one after the other.
        tokio::time::sleep(Duration::from_millis(200)).await;
        // Core gives up after five seconds; without it, a request would wait while the member hangs.
        let ended = tokio::time::timeout(PATIENCE, engine.claim(&next, How::Create)).await;
        let error = ended.expect("the request ends while the member hangs").unwrap_err();
        assert_eq!(error.fault, Fault::Unknown, "{error}");
        rig.server.resume();
        let released = loop {
            match &engine.release(&release_of(&next)).await[..] {
                [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                [certain] => break format!("{certain:?}"),
                other => panic!("{other:?}"),
            }
        };
        assert!(["Freed", "NotThere"].contains(&released.as_str()), "{released}");
        assert!(matches!(engine.release(&release_of(&held)).await[..], [Released::Freed]));
    });
    assert_eq!(rig.keys(), [""; 0]);
}

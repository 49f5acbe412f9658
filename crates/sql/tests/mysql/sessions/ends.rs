//! The end of a session: its holder is told, and the lock is free.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, How, Inspect, Loss, Notification, Renewed};
use leasehold_testkit::server::MariadbServer;

use super::rig::{assert_lost, event_of, no_delay};
use crate::{
    rig::{Rig, assert_taken, claim, claim_and_hold, hold_of, release_hold, renewal_result},
    until::until,
};

/// F57: the holder asks nothing, and is told by the connection. All holds of the session end together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_session_is_reported_at_once() {
    let rig = Rig::new();
    let (one, other) = (rig.session(), rig.session());
    let claims = [claim("a"), claim("b")];
    for claim in &claims {
        claim_and_hold(&*one, claim).await;
    }
    other.ping().await.unwrap();
    let holder = rig.server.query("SELECT MIN(id) FROM information_schema.processlist WHERE db = 'locks'");
    rig.server.query(&format!("KILL CONNECTION {}", holder[0]));
    assert_lost(&one, &claims).await;
    for claim in &claims {
        let again = crate::rig::claim(claim.name.as_str());
        claim_and_hold(&*other, &again).await;
    }
    // The client goes on with a new session.
    let next = claim("c");
    let grant = claim_and_hold(&*one, &next).await;
    release_hold(&*one, &next, &grant).await;
    assert_taken(&*one, "a").await;
}

/// A claim waits while the session of the holder is killed, and is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_session_goes_to_a_waiter() {
    let rig = Rig::new();
    let (one, other) = (rig.session(), rig.session());
    let mine = claim("a");
    claim_and_hold(&*one, &mine).await;
    let holder = rig.sessions();
    let waiting = Claim { may_queue: true, ..claim("a") };
    assert!(matches!(other.claim(&waiting, How::Create).await, Ok(Answer::Waiting(_))));
    rig.server.query(&format!("KILL CONNECTION {}", holder[0]));
    assert!(matches!(event_of(&other, waiting.id).await, Notification::Granted { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_ends_every_hold() {
    let mut rig = Rig::new();
    let one = rig.session();
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    rig.server.kill();
    assert_lost(&one, std::slice::from_ref(&mine)).await;
    let renewed = renewal_result(&*one, &hold_of(&mine, &grant)).await;
    assert!(matches!(renewed, Renewed::Lost(Loss::Gone)), "{renewed:?}");
    rig.server.restart();
    rig.wait_until_it_grants();
    let again = claim("a");
    let later = claim_and_hold(&*one, &again).await;
    assert!(later.token.lineage == grant.token.lineage && later.token.number > grant.token.number);
}

/// Whoever held before the server started may still rely on it: nothing is granted until that time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_of_the_server_nothing_is_granted_for_the_lock_delay() {
    let rig = Rig::new();
    let long = no_delay().delay(Duration::from_secs(60)).unwrap();
    let delayed = rig.session_with(long);
    for _ in 0..2 {
        let answer = delayed.claim(&claim("a"), How::Create).await;
        assert!(matches!(&answer, Ok(Answer::Taken(_))), "{answer:?}");
    }
    claim_and_hold(&*rig.session(), &claim("a")).await;
}

/// F58: the client is cut off. Its hold is not confirmed, and the server keeps the lock as long as the client may rely
/// on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_off_keeps_its_lock_and_is_not_confirmed() {
    let rig = Rig::new();
    let one = rig.proxied_session();
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    rig.proxy.hold_requests();
    let holds = [hold_of(&mine, &grant)];
    let renewed = tokio::time::timeout(Duration::from_millis(300), one.renew(&holds)).await;
    assert!(renewed.is_err(), "{renewed:?}");
    assert_taken(&*rig.session(), "a").await;
    rig.proxy.release_held();
    let renewed = renewal_result(&*one, &holds[0]).await;
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
}

/// F58: the defaults of the server would end a session within a second of silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_timeouts_of_the_server_end_no_session() {
    let short =
        ["--wait-timeout=1", "--interactive-timeout=1", "--net-read-timeout=1", "--net-write-timeout=1"];
    let rig = Rig::of(MariadbServer::start(&short));
    let one = rig.session();
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    let silent =
        || rig.server.query("SELECT 1 FROM information_schema.processlist WHERE db = 'locks' AND time >= 3");
    until("the session has been silent for longer", || !silent().is_empty());
    let renewed = one.renew(&[hold_of(&mine, &grant)]).await.remove(0);
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    release_hold(&*one, &mine, &grant).await;
}

/// An operator ends a statement of the session, not the session: nothing is held by mistake afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_statement_leaves_no_lock() {
    let rig = Rig::new();
    let one = rig.session();
    let kept = claim("kept");
    let grant = claim_and_hold(&*one, &kept).await;
    let session = rig.sessions().remove(0);
    let kill = format!("KILL QUERY {session};").repeat(5);
    let (mut failed, mut rounds) = (0, 0);
    while failed == 0 {
        rounds += 1;
        assert!(rounds < 100, "no statement was killed");
        let killing = std::thread::scope(|scope| {
            let killer = scope.spawn(|| rig.server.query(&kill));
            let handle = tokio::runtime::Handle::current();
            let claims = (0..200).map(|number| claim(&format!("n{number}")));
            let outcomes: Vec<_> = tokio::task::block_in_place(|| {
                claims.map(|claim| (handle.block_on(one.claim(&claim, How::Create)), claim)).collect()
            });
            killer.join().unwrap();
            outcomes
        });
        for (outcome, claim) in killing {
            match outcome {
                Ok(Answer::Held(grant)) => release_hold(&*one, &claim, &grant).await,
                Ok(other) => panic!("{}: {other:?}", claim.name),
                Err(_) => failed += 1,
            }
        }
    }
    let renewed = one.renew(&[hold_of(&kept, &grant)]).await.remove(0);
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    let other = rig.session();
    for number in 0..200 {
        claim_and_hold(&*other, &claim(&format!("n{number}"))).await;
    }
}

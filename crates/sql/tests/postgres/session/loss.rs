//! Sessions that end, and networks that fail, while a lock is held.

use std::{thread::spawn, time::Duration};

use leasehold_core::{Answer, Engine, ErrorKind, Guard, Hold, How, Loss, Notification, Renewed};
use leasehold_testkit::claims;

use super::rig::SessionRig;
use crate::rig::{PATIENCE, acquire, until};

/// Ends all sessions of leasehold on the server, as an operator may.
const TERMINATE: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";

/// The reason why a hold was lost.
fn loss(rig: &SessionRig, guard: &Guard) -> Option<Loss> {
    match rig.run(guard.confirm()).map_err(|error| error.kind()) {
        Err(ErrorKind::Lost(loss)) => Some(loss),
        _ => None,
    }
}

/// F57: the holder is told over its connection, before its deadline, and the next process is granted.
#[test]
fn a_terminated_session_is_reported_at_once() {
    let rig = SessionRig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let ended = guard.lost();
    rig.server.query(TERMINATE);
    assert_eq!(rig.run(ended), Loss::Gone, "reported by the end of the connection, not by the deadline");
    assert!(!guard.check());
    acquire(&other, "a").release_blocking().unwrap();
    // The process opens a new session.
    acquire(&locks, "a").release_blocking().unwrap();
}

/// The report needs no request of the process.
#[test]
fn the_end_of_a_session_is_pushed() {
    let rig = SessionRig::new();
    let engine = rig.engine();
    let claim = claims::exclusive("a", Duration::from_secs(600));
    rig.run(async {
        let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else { panic!("it is free") };
        assert_eq!(
            grant.ttl,
            Some(Duration::from_secs(15)),
            "half of the time that the server keeps a session"
        );
        let hold = Hold {
            id: claim.id,
            name: claim.name.clone(),
            mode: claim.mode,
            token: grant.token,
            ttl: claim.ttl,
        };
        let renewed = engine.renew(&[hold]).await;
        let Renewed::Extended { ttl, .. } = renewed[0] else { panic!("{renewed:?}") };
        assert_eq!(ttl, grant.ttl);
        rig.server.query(TERMINATE);
        let notified = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
        let is_lost = |one: &Notification| matches!(one, Notification::Lost { id, .. } if *id == claim.id);
        assert!(notified.iter().any(is_lost), "{notified:?}");
    });
}

/// F58: the network is cut without a message. The hold lapses while the server still has its lock.
#[test]
fn a_hold_behind_a_cut_network_lapses_before_the_server_frees_it() {
    let rig = SessionRig::new();
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a");
    let other = rig.locks();
    proxy.hold_requests();
    proxy.hold_answers();
    while guard.check() {
        let taken = other.mutex("a").blocking().try_acquire();
        assert!(taken.is_err_and(|error| error.is_taken()) || !guard.check(), "two processes hold the name");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(rig.advisory_locks().len(), 1, "the server still has the lock of the lapsed hold");
    // What the server does when its time for a silent connection is over.
    rig.server.query(TERMINATE);
    acquire(&other, "a").release_blocking().unwrap();
}

/// The connection of a killed process is closed by its system; a waiting process is granted.
#[test]
fn a_closed_connection_frees_its_names() {
    let rig = SessionRig::new();
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a");
    let other = rig.locks();
    let waiting = spawn(move || acquire(&other, "a"));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    proxy.cut_clients();
    proxy.drop_connections();
    let next = waiting.join().unwrap();
    assert!(next.check());
    until("the hold is lost", || !guard.check());
    assert_eq!(loss(&rig, &guard), Some(Loss::Gone));
    next.release_blocking().unwrap();
}

/// A waiting claim goes on in a new session.
#[test]
fn a_waiting_claim_outlives_its_session() {
    let rig = SessionRig::new();
    let guard = acquire(&rig.locks(), "a");
    let (proxy, waiter) = rig.proxied();
    let waiting = spawn(move || waiter.mutex("a").blocking().acquire_within(PATIENCE));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    for _ in 0..3 {
        proxy.drop_connections();
        until("the claim waits again", || rig.show("a").waiters.len() == 1);
    }
    assert!(!waiting.is_finished());
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    until("nothing is left", || rig.advisory_locks().is_empty());
}

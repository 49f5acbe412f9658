//! F49 to F54 on one server: sessions and their nodes.

use std::{
    sync::mpsc::channel,
    thread::{sleep, spawn},
    time::Duration,
};

use leasehold::Loss;
use leasehold_testkit::{lease_retries::with_longer_leases, stopwatch::Stopwatch};

use crate::{
    rig::{LONG, PATIENCE, SLACK, acquire, millis, rng, until},
    zookeeper_rig::{EXPIRY, Rig, SHORTEST},
};

#[test]
fn f49_answer_is_lost_after_the_node_was_made() {
    let rig = Rig::new();
    let (proxy, locks) = rig.proxied();
    let mut rng = rng();
    for round in 0..20 {
        let name = format!("a{round}");
        let ends = spawn({
            let (locks, name) = (locks.clone(), name.clone());
            move || acquire(&locks, &name, SHORTEST * 10)
        });
        sleep(Duration::from_micros(rng.below(3000)));
        proxy.hold_answers();
        sleep(millis(5));
        proxy.drop_connections();
        let guard = ends.join().unwrap();
        let nodes = rig.nodes();
        assert_eq!(nodes.iter().filter(|node| node.contains(&format!("/{name}/"))).count(), 1, "{nodes:?}");
        guard.release_blocking().unwrap();
    }
    rig.expect_clean();
}

#[test]
fn f50_cut_off_for_longer_than_the_session() {
    let rig = Rig::new();
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", SHORTEST);
    sleep(rng().millis(0..1500));
    proxy.block();
    let watch = Stopwatch::start();
    let lost = spawn({
        let lost = guard.lost();
        move || {
            assert_eq!(pollster::block_on(lost), Loss::Lapsed);
            watch.assert_within(SHORTEST, "the loss is reported before the server ends the session");
        }
    });
    let next = acquire(&rig.locks(), "a", LONG);
    assert!(!guard.check(), "I1");
    watch.assert_within(SHORTEST + EXPIRY + SLACK, "the name is free");
    lost.join().unwrap();
    next.release_blocking().unwrap();
}

#[test]
fn f50_hung_server_and_the_hold_ends_at_its_deadline() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a", SHORTEST);
    sleep(rng().millis(0..1500));
    rig.server.pause();
    let watch = Stopwatch::start();
    assert_eq!(pollster::block_on(guard.lost()), Loss::Lapsed);
    watch.assert_within(SHORTEST, "the loss is reported without an answer of the server");
    rig.server.resume();
    acquire(&rig.locks(), "a", LONG).release_blocking().unwrap();
    assert!(!guard.check());
}

/// The hold has ended for its client, but the server has not ended the session yet. The old node blocks the next claim
/// of the same client, which must not take it for its own.
#[test]
fn f51_client_reconnects_before_its_session_ends() {
    let rig = Rig::new();
    with_longer_leases(SHORTEST * 2, "the next hold of the same client was still valid", |ttl| {
        let (proxy, locks) = rig.proxied();
        let guard = acquire(&locks, "a", ttl);
        proxy.block();
        assert_eq!(pollster::block_on(guard.lost()), Loss::Lapsed);
        proxy.unblock();
        let next = acquire(&locks, "a", ttl);
        assert!(next.token() > guard.token(), "I4");
        assert!(!guard.check());
        let beside = rig.locks().mutex("a").ttl(ttl).blocking().try_acquire();
        let lives = next.check();
        assert!(!lives || beside.unwrap_err().is_taken());
        lives && next.release_blocking().is_ok()
    });
    rig.expect_clean();
}

/// The node ahead of a waiter is deleted between the waiter's read of the list and its watch.
#[test]
fn f52_previous_node_is_deleted_between_list_and_watch() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let mut rng = rng();
    for _ in 0..300 {
        let guard = acquire(&one, "a", SHORTEST * 10);
        let (tx, rx) = channel();
        let waits = two.mutex("a").ttl(SHORTEST * 10).blocking();
        spawn(move || tx.send(waits.acquire_within(PATIENCE).unwrap()));
        sleep(Duration::from_micros(rng.below(2500)));
        guard.release_blocking().unwrap();
        let watch = Stopwatch::start();
        rx.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
        watch.assert_within(SLACK * 2, "I7");
    }
    rig.expect_clean();
}

/// The server deletes the directories of unused names, and the counters in them.
#[test]
fn f53_directory_is_deleted_by_the_server() {
    let rig = Rig::with(&["-Dznode.container.checkIntervalMs=50"]);
    let locks = rig.locks();
    let mut rng = rng();
    let mut last = 0;
    for round in 0..60 {
        let guard = acquire(&locks, "a", SHORTEST * 10);
        let token = guard.token().number;
        assert!(token > last, "I4: {token} after {last} in round {round}");
        last = token;
        guard.release_blocking().unwrap();
        sleep(rng.millis(0..120));
    }
    until("the directory is deleted", || {
        rig.server.command(&["ls", "/locks"]).iter().any(|line| line == "[]")
    });
    rig.expect_clean();
}

/// F53: an operator deletes the directory while claims hold and wait for the name.
#[test]
fn f53_directory_is_deleted_under_a_hold() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let guard = acquire(&one, "a", SHORTEST * 10);
    let waits = two.mutex("a").ttl(SHORTEST * 10).blocking();
    let waiting = spawn(move || waits.acquire_within(PATIENCE).unwrap());
    until("it waits", || rig.nodes().len() == 2);
    sleep(millis(200));
    rig.server.command(&["deleteall", "/locks/a"]);
    assert_eq!(pollster::block_on(guard.lost()), Loss::Gone);
    let next = waiting.join().unwrap();
    assert!(next.token() > guard.token());
    // The grant may have come before the deletion of its own node, so the release may fail.
    let _ = next.release_blocking();
    acquire(&one, "a", SHORTEST * 10).release_blocking().unwrap();
    rig.expect_clean();
}

#[test]
fn f54_claims_are_given_up_at_any_moment() {
    let rig = Rig::new();
    let (proxy, locks) = rig.proxied();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut rng = rng();
    for round in 0..150 {
        let holder = rng.percent(50).then(|| acquire(&rig.locks(), "a", SHORTEST * 10));
        let wait = locks.mutex("a").ttl(SHORTEST * 10).acquire();
        let limit = Duration::from_micros(rng.below(4000));
        runtime.block_on(async { drop(tokio::time::timeout(limit, wait).await) });
        holder.into_iter().for_each(|holder| holder.release_blocking().unwrap());
        if round % 10 == 0 {
            proxy.reset();
        }
    }
    rig.expect_clean();
}

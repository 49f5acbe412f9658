//! etcd: connections and servers that stop answering without an error.

use std::{
    thread::{sleep, spawn},
    time::Duration,
};

use leasehold::Loss;
use leasehold_testkit::{
    server::{EtcdCluster, Proxy},
    stopwatch::Stopwatch,
};

use crate::{
    etcd_rig::{EXPIRY, Rig, SHORTEST, through_proxies},
    rig::{LONG, PATIENCE, SLACK, acquire, rng, until, until_renewed, warm},
};

/// The ttl of a hold that must be renewed in spite of a silence, a third of the ttl after the grant or a little later.
const LEASE: Duration = Duration::from_secs(12);

fn silence(proxy: &Proxy) {
    proxy.hold_requests();
    proxy.hold_answers();
}

#[test]
fn f44_silent_server_and_the_hold_ends_at_its_deadline() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    let guard = acquire(&rig.locks(), "a", ttl);
    sleep(rng().millis(0..1500));
    // The paused server still accepts connections, and answers on none.
    rig.server.pause();
    let watch = Stopwatch::start();
    assert_eq!(pollster::block_on(guard.lost()), Loss::Lapsed);
    watch.assert_within(ttl + SLACK, "the loss is reported without an answer of the server");
    rig.server.resume();
    let watch = Stopwatch::start();
    acquire(&rig.locks(), "a", LONG).release_blocking().unwrap();
    watch.assert_within(ttl + EXPIRY + SLACK, "the name is free");
    assert!(!guard.check());
}

#[test]
fn f44_half_open_connection_of_a_holder_and_of_a_waiter() {
    let (rig, ttl) = (Rig::new(), LEASE);
    let ((held, holder), (waits, waiter)) = (rig.proxied(), rig.proxied());
    let guard = acquire(&holder, "a", ttl);
    let waiting = spawn(move || waiter.mutex("a").ttl(ttl).blocking().acquire_within(PATIENCE));
    until("it waits", || rig.queue_keys("a").len() == 2);
    sleep(rng().millis(0..1500));
    [&held, &waits].into_iter().for_each(silence);
    until_renewed(&guard);
    assert!(guard.check(), "renewed on another connection");
    guard.release_blocking().unwrap();
    let watch = Stopwatch::start();
    let next = waiting.join().unwrap().unwrap();
    watch.assert_within(SLACK, "granted through a new connection");
    next.release_blocking().unwrap();
}

#[test]
fn f44_silent_member_and_the_hold_is_renewed_through_another() {
    let (cluster, ttl) = (EtcdCluster::start(), LEASE);
    let (proxies, locks) = through_proxies(&cluster);
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..2000));
    let silent = proxies.iter().position(|proxy| proxy.connections() > 0).unwrap();
    silence(&proxies[silent]);
    until_renewed(&guard);
    assert!(guard.check(), "renewed through another member");
    let others = proxies.iter().enumerate().filter(|(at, _)| *at != silent);
    assert!(others.map(|(_, proxy)| proxy.connections()).sum::<usize>() > 0);
    guard.release_blocking().unwrap();
}

/// A follower forwards renewals of leases to its leader, one after the other, so one without an answer delays all.
#[test]
fn f44_healthy_member_keeps_no_lease_alive() {
    let (mut cluster, ttl) = (EtcdCluster::start(), LEASE);
    let leader = cluster.leader();
    let (_proxies, locks) = loop {
        let (proxies, locks) = through_proxies(&cluster);
        warm(&locks, SHORTEST);
        if proxies[leader].connections() == 0 {
            break (proxies, locks);
        }
    };
    let guard = acquire(&locks, "a", ttl);
    // Shortly before a third of the ttl, when the renewal is due, so that there is no new leader yet at that time.
    sleep(ttl / 3 - rng().millis(200..600));
    cluster.pause(leader);
    until_renewed(&guard);
    assert!(guard.check(), "renewed by another stream");
    guard.release_blocking().unwrap();
}

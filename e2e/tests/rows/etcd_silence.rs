//! Connections and servers that say nothing and do not break.

use std::{
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use leasehold::Loss;
use leasehold_testkit::server::{EtcdCluster, Proxy};

use crate::{
    etcd_rig::{EXPIRY, Rig, SHORTEST, watched},
    rig::{PATIENCE, SLACK, acquire, dice, millis, until},
};

fn silence(proxy: &Proxy) {
    proxy.hold_requests();
    proxy.hold_answers();
}

#[test]
fn f44_server_is_silent_and_the_holder_knows_by_itself() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    let guard = acquire(&rig.locks(), "a", ttl);
    sleep(dice().millis(0..1500));
    // It still takes connections, and says nothing on any.
    rig.server.pause();
    let begin = Instant::now();
    let lost = spawn({
        let lost = guard.lost();
        move || (pollster::block_on(lost), Instant::now())
    });
    let (loss, told) = lost.join().unwrap();
    assert_eq!(loss, Loss::Lapsed);
    assert!(told - begin < ttl + SLACK, "without a word of the server: {:?}", told - begin);
    rig.server.resume();
    let begin = Instant::now();
    acquire(&rig.locks(), "a", ttl).release_blocking().unwrap();
    assert!(begin.elapsed() < ttl + EXPIRY + SLACK, "{:?}", begin.elapsed());
    assert!(!guard.check());
}

#[test]
fn f44_half_open_connection_of_a_holder_and_of_a_waiter() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(6));
    let ((held, holder), (waits, waiter)) = (rig.proxied(), rig.proxied());
    let guard = acquire(&holder, "a", ttl);
    let waiting = spawn(move || waiter.mutex("a").ttl(ttl).blocking().acquire_within(PATIENCE));
    until("it waits", || rig.line("a").len() == 2);
    sleep(dice().millis(0..1500));
    [&held, &waits].into_iter().for_each(silence);
    let end = Instant::now() + ttl + ttl / 2;
    while Instant::now() < end {
        assert!(guard.check(), "kept alive on another connection");
        sleep(millis(20));
    }
    guard.release_blocking().unwrap();
    let begin = Instant::now();
    let next = waiting.join().unwrap().unwrap();
    assert!(begin.elapsed() < SLACK, "on a connection that hears: {:?}", begin.elapsed());
    next.release_blocking().unwrap();
}

#[test]
fn f44_silent_member_and_the_hold_is_kept_through_another() {
    let (cluster, ttl) = (EtcdCluster::start(), Duration::from_secs(6));
    let (proxies, locks) = watched(&cluster);
    let guard = acquire(&locks, "a", ttl);
    sleep(dice().millis(0..2000));
    let silent = proxies.iter().position(|proxy| proxy.connections() > 0).unwrap();
    silence(&proxies[silent]);
    let end = Instant::now() + ttl + ttl / 2;
    while Instant::now() < end {
        assert!(guard.check(), "kept alive through another member");
        sleep(millis(20));
    }
    let others = proxies.iter().enumerate().filter(|(at, _)| *at != silent);
    assert!(others.map(|(_, proxy)| proxy.connections()).sum::<usize>() > 0);
    guard.release_blocking().unwrap();
}

/// A follower asks its leader to keep leases alive, one after the other: one question without an answer holds up all.
#[test]
fn f44_member_is_well_and_keeps_no_lease_alive() {
    let (mut cluster, ttl) = (EtcdCluster::start(), Duration::from_secs(9));
    let leader = cluster.leader();
    let (_proxies, locks) = loop {
        let (proxies, locks) = watched(&cluster);
        acquire(&locks, "warm", SHORTEST).release_blocking().unwrap();
        if proxies[leader].connections() == 0 {
            break (proxies, locks);
        }
    };
    let guard = acquire(&locks, "a", ttl);
    // Shortly before a third of the lease, when it is to be kept alive, and before the others have a new leader.
    sleep(ttl / 3 - dice().millis(200..600));
    cluster.pause(leader);
    let end = Instant::now() + ttl;
    while Instant::now() < end {
        assert!(guard.check(), "kept alive by another stream");
        sleep(millis(20));
    }
    guard.release_blocking().unwrap();
}

//! etcd leases that end while claims depend on them.

use std::{
    thread::{scope, sleep, spawn},
    time::Duration,
};

use leasehold::{ErrorKind, Loss};
use leasehold_core::HAND_OVER_TOKENS;
use leasehold_testkit::stopwatch::Stopwatch;
use nix::sys::signal::Signal;

use crate::{
    etcd_rig::{EXPIRY, Rig, SHORTEST},
    rig::{HELD, Holder, LONG, PATIENCE, SLACK, acquire, millis, pause_beyond_the_lease, rng, until},
};

#[test]
fn f01_pause_beyond_a_lease_of_etcd() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    pause_beyond_the_lease(&rig.url(), ttl, 0..800, 2 * ttl, |locks, next| {
        pollster::block_on(locks.etcd_fence("a").unwrap().seal(next.token())).unwrap();
    });
}

#[test]
fn f41_lease_of_a_waiter_is_revoked() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a", LONG);
    let waiter = rig.locks();
    let waiting = spawn(move || waiter.mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE));
    until("it waits", || rig.queue_keys("a").len() == 2);
    sleep(rng().millis(0..700));
    let (position, lease) = rig.queue_keys("a")[1];
    rig.revoke(lease);
    until("it has a new queue entry", || rig.queue_keys("a").len() == 2);
    let (new_position, new_lease) = rig.queue_keys("a")[1];
    assert!(new_position > position && new_lease != lease, "its old key stays deleted");
    assert!(!waiting.is_finished() && guard.check());
    guard.release_blocking().unwrap();
    let watch = Stopwatch::start();
    let next = waiting.join().unwrap().unwrap();
    watch.assert_within(SLACK, "the waiter is granted");
    assert_eq!(next.token().number, new_position * u64::from(HAND_OVER_TOKENS));
    next.release_blocking().unwrap();
    assert!(rig.queue_keys("a").is_empty());
}

#[test]
fn f41_waiter_is_stopped_beyond_its_lease_and_granted_meanwhile() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a", LONG);
    // With a ttl that outlasts stalls of the machine before the check.
    let mut waiter = Holder::spawn(&rig.url(), "a", SHORTEST * 3, &[]);
    until("it waits", || rig.queue_keys("a").len() == 2);
    let (position, _) = rig.queue_keys("a")[1];
    sleep(rng().millis(0..700));
    waiter.signal(Signal::SIGSTOP);
    // The key ahead is deleted first, so the first notification that the resumed waiter reads is that it is the head.
    guard.release_blocking().unwrap();
    let third = acquire(&rig.locks(), "a", LONG);
    waiter.signal(Signal::SIGCONT);
    until("it has a new queue entry", || rig.queue_keys("a").len() == 2);
    assert!(third.check(), "I1: the hold is still valid");
    third.release_blocking().unwrap();
    waiter.wait_for_grant();
    assert!(waiter.token > position, "the grant is not by the expired key");
    assert_eq!((waiter.ask("check").as_str(), waiter.ask("release").as_str()), ("true", "ok"));
}

#[test]
fn f43_lease_is_revoked_under_a_hold() {
    // With a ttl that outlasts stalls of the machine, so that the report comes before the deadline.
    let (rig, ttl, mut rng) = (Rig::new(), HELD, rng());
    let run = |name: &str, held: Duration, late: Option<Duration>| {
        let (proxy, locks) = rig.proxied();
        let guard = acquire(&locks, name, ttl);
        // In some runs a renewal is in flight, and its late answer is a success.
        sleep(held);
        if let Some(late) = late {
            proxy.hold_answers();
            sleep(late);
        }
        rig.revoke(rig.queue_keys(name)[0].1);
        let watch = Stopwatch::start();
        proxy.release_held();
        let next = acquire(&rig.locks(), name, LONG);
        until("the loss is reported", || !guard.check());
        watch.assert_within(ttl / 3 + SLACK, "the next renewal reports the loss");
        assert_eq!(pollster::block_on(guard.lost()), Loss::Gone);
        assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
        assert!(next.check(), "the release affects no other hold");
        next.release_blocking().unwrap();
    };
    let third = ttl.as_millis() as u64 / 3;
    scope(|scope| {
        for (number, is_late) in [false, false, true, true].into_iter().enumerate() {
            let (run, held) = (&run, rng.millis(0..third));
            let late = is_late.then(|| rng.millis(0..third / 2));
            scope.spawn(move || run(&format!("a{number}"), held, late));
        }
    });
}

#[test]
fn f43_lease_is_revoked_under_a_hold_without_a_notification() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..700));
    proxy.hold_answers();
    rig.revoke(rig.queue_keys("a")[0].1);
    let watch = Stopwatch::start();
    until("its own deadline passes", || !guard.check());
    watch.assert_within(ttl, "its own deadline passes");
    proxy.release_held();
    sleep(millis(300));
    assert!(!guard.check(), "no late answer revives the hold");
    let watch = Stopwatch::start();
    acquire(&locks, "a", LONG).release_blocking().unwrap();
    watch.assert_within(ttl + EXPIRY + SLACK, "the name is free");
}

//! Requests and replies that are late, doubled or lost.

use std::{
    thread::{scope, sleep, spawn},
    time::Duration,
};

use leasehold::Loss;
use leasehold_testkit::stopwatch::Stopwatch;

use crate::rig::{HELD, LONG, PATIENCE, Rig, SLACK, acquire, millis, rng, until, until_renewed};

#[test]
fn f02_grant_that_comes_after_its_lease() {
    let (rig, ttl) = (Rig::new(), millis(400));
    let (proxy, locks) = rig.proxied();
    proxy.hold_answers();
    let request = locks.mutex("a").ttl(ttl).renew(false).blocking();
    let trying = spawn(move || request.try_acquire());
    until("it was granted", || rig.left("lock:a") > 0);
    sleep(ttl + rng().millis(0..300));
    proxy.release_held();
    // Whether the claim is granted or not, no hold is valid for longer than on the server.
    if let Ok(guard) = trying.join().unwrap() {
        // The server is asked first: the time between the two readings only reduces the second one.
        let there = rig.left("lock:a");
        if let Some(left) = guard.remaining().filter(|left| !left.is_zero()) {
            assert!(there + 2 >= left.as_millis() as i64, "{left:?} left of a lease that had ended");
        }
    }
    let watch = Stopwatch::start();
    acquire(&rig.locks(), "a", ttl).release_blocking().unwrap();
    watch.assert_within(ttl + SLACK, "the claim was released, or expired");
}

#[test]
fn f03_request_that_arrives_after_its_caller_gave_up() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(30));
    let (proxy, locks) = rig.proxied();
    proxy.hold_requests();
    let limit = rng().millis(50..250);
    let watch = Stopwatch::start();
    let error = locks.mutex("a").ttl(ttl).blocking().acquire_within(limit).unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown() || error.is_timed_out(), "{error}");
    watch.assert_within(limit + SLACK, "I12");
    proxy.cut_clients();
    proxy.release_held();
    let watch = Stopwatch::start();
    acquire(&rig.locks(), "a", ttl).release_blocking().unwrap();
    watch.assert_within(Duration::from_secs(12), "no late request holds the name for a lease");
    until("nothing is left", || rig.left("lock:a") == -2 && rig.waiters("a") == 0);
}

#[test]
fn f05_renewal_that_arrives_when_another_holds() {
    let (rig, ttl) = (Rig::new(), millis(600));
    let (proxy, locks) = rig.proxied();
    let stale = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..300));
    proxy.hold_requests();
    let next = acquire(&rig.locks(), "a", LONG);
    assert!(!stale.check(), "I1");
    let value = rig.holder("a");
    proxy.release_held();
    sleep(millis(300));
    assert_eq!(rig.holder("a"), value);
    assert!(next.check() && !stale.check());
    assert!(stale.release_blocking().unwrap_err().is_lost());
    assert_eq!(rig.holder("a"), value, "its release does not change the lock either");
}

#[test]
fn f06_late_release_after_the_next_grant_to_the_same_client() {
    let (rig, ttl) = (Rig::new(), millis(900));
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    proxy.hold_requests();
    let releasing = spawn(move || guard.release_blocking());
    sleep(rng().millis(10..100));
    proxy.cut_clients();
    let again = acquire(&locks, "a", LONG);
    let value = rig.holder("a");
    proxy.release_held();
    sleep(millis(100));
    assert_eq!(rig.holder("a"), value, "the late release does not end the new hold");
    assert!(again.check());
    let _ = releasing.join().unwrap();
    again.release_blocking().unwrap();
}

#[test]
fn f12_one_renewal_is_lost() {
    let (rig, ttl) = (Rig::new(), HELD);
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..600));
    proxy.hold_requests();
    sleep(ttl / 3);
    proxy.drop_connections();
    until_renewed(&guard);
    assert!(guard.check(), "renewed again within its lease");
    guard.release_blocking().unwrap();
}

#[test]
fn f13_partition_while_holding() {
    let (rig, ttl) = (Rig::new(), millis(800));
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..500));
    proxy.hold_requests();
    proxy.hold_answers();
    let watch = Stopwatch::start();
    let lost = spawn({
        let lost = guard.lost();
        move || {
            assert_eq!(pollster::block_on(lost), Loss::Lapsed);
            watch.assert_within(ttl + SLACK, "the loss is reported without an answer of the server");
        }
    });
    let next = acquire(&rig.locks(), "a", LONG);
    assert!(!guard.check(), "I1: no claim is granted before the hold ends");
    lost.join().unwrap();
    assert!(next.check());
}

#[test]
fn f14_release_while_a_renewal_is_in_flight() {
    let (rig, ttl, mut rng) = (Rig::new(), millis(6000), rng());
    let run = |name: String, phases: [Duration; 2]| {
        let (proxy, locks) = rig.proxied();
        let key = format!("lock:{name}");
        let guard = acquire(&locks, &name, ttl);
        // A renewal is due every third of the ttl.
        sleep(ttl / 3 - millis(20) + phases[0]);
        proxy.hold_answers();
        let releasing = spawn(move || guard.release_blocking());
        sleep(phases[1]);
        proxy.release_held();
        releasing.join().unwrap().unwrap();
        assert_eq!(rig.left(&key), -2);
        sleep(millis(300));
        assert_eq!(rig.left(&key), -2, "a renewal brought it back");
    };
    scope(|scope| {
        for number in 0..8 {
            let (run, phases) = (&run, [rng.millis(0..40), rng.millis(0..30)]);
            scope.spawn(move || run(format!("a{number}"), phases));
        }
    });
}

#[test]
fn f73_grant_whose_reply_is_lost() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(30));
    let (proxy, locks) = rig.proxied();
    proxy.hold_answers();
    let request = locks.mutex("a").ttl(ttl).blocking();
    let watch = Stopwatch::start();
    let waiting = spawn(move || request.acquire_within(PATIENCE));
    until("it was granted", || rig.left("lock:a") > 0);
    sleep(rng().millis(0..200));
    proxy.drop_connections();
    let guard = waiting.join().unwrap().unwrap();
    watch.assert_within(ttl / 3, "the grant is adopted or cleaned up before its lease ends");
    let there = rig.left("lock:a");
    assert!(there + 2 >= guard.remaining().unwrap().as_millis() as i64, "I2");
    guard.release_blocking().unwrap();
    assert_eq!(rig.left("lock:a"), -2);
}

#[test]
fn f78_idle_connections_are_dropped_in_silence() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(12));
    let ((held, holder), (waits, waiter)) = (rig.proxied(), rig.proxied());
    let guard = acquire(&holder, "a", ttl);
    let waiting = spawn(move || waiter.mutex("a").blocking().acquire_within(PATIENCE));
    until("it waits", || rig.waiters("a") == 1);
    sleep(rng().millis(0..500));
    for proxy in [&held, &waits] {
        proxy.hold_requests();
        proxy.hold_answers();
    }
    (0..2).for_each(|_| until_renewed(&guard));
    assert!(guard.check(), "renewed on another connection");
    guard.release_blocking().unwrap();
    let watch = Stopwatch::start();
    let next = waiting.join().unwrap().unwrap();
    watch.assert_within(SLACK, "granted through a new connection");
    next.release_blocking().unwrap();
}

//! What is on its way is late, doubled or lost.

use std::{
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use leasehold::Loss;

use crate::rig::{PATIENCE, Rig, SLACK, acquire, dice, millis, until};

#[test]
fn f02_grant_that_comes_after_its_lease() {
    let (rig, ttl) = (Rig::new(), millis(400));
    let (proxy, locks) = rig.proxied();
    proxy.hold_answers();
    let request = locks.mutex("a").ttl(ttl).blocking();
    let trying = spawn(move || request.try_acquire());
    until("it was granted", || rig.left("lock:a") > 0);
    sleep(ttl + dice().millis(0..300));
    proxy.let_go();
    // Whatever comes of it: nothing is believed that the server does not know.
    if let Ok(guard) = trying.join().unwrap()
        && let Some(left) = guard.remaining().filter(|left| !left.is_zero())
    {
        assert!(rig.left("lock:a") + 2 >= left.as_millis() as i64, "{left:?} of a lease that was over");
    }
    let begin = Instant::now();
    acquire(&rig.locks(), "a", ttl).release_blocking().unwrap();
    assert!(begin.elapsed() < ttl + SLACK, "the attempt was released, or lapsed: {:?}", begin.elapsed());
}

#[test]
fn f03_request_that_arrives_after_its_caller_gave_up() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(30));
    let (proxy, locks) = rig.proxied();
    proxy.hold_requests();
    let limit = dice().millis(50..250);
    let begin = Instant::now();
    let error = locks.mutex("a").ttl(ttl).blocking().acquire_within(limit).unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown() || error.is_timed_out(), "{error}");
    assert!(begin.elapsed() < limit + SLACK, "I12: {:?}", begin.elapsed());
    proxy.cut_clients();
    proxy.let_go();
    let begin = Instant::now();
    acquire(&rig.locks(), "a", ttl).release_blocking().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(12), "no ghost for a lease: {:?}", begin.elapsed());
    until("nothing is left", || rig.left("lock:a") == -2 && rig.waiters("a") == 0);
}

#[test]
fn f05_renewal_that_arrives_when_another_holds() {
    let (rig, ttl) = (Rig::new(), millis(600));
    let (proxy, locks) = rig.proxied();
    let stale = acquire(&locks, "a", ttl);
    sleep(dice().millis(0..300));
    proxy.hold_requests();
    let next = acquire(&rig.locks(), "a", Duration::from_secs(20));
    assert!(!stale.check(), "I1");
    let value = rig.holder("a");
    proxy.let_go();
    sleep(millis(300));
    assert_eq!(rig.holder("a"), value);
    assert!(next.check() && !stale.check());
    assert!(stale.release_blocking().unwrap_err().is_lost());
    assert_eq!(rig.holder("a"), value, "nor does its release");
}

#[test]
fn f06_release_that_arrives_after_the_next_grant_to_the_same_client() {
    let (rig, ttl) = (Rig::new(), millis(900));
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    proxy.hold_requests();
    let releasing = spawn(move || guard.release_blocking());
    sleep(dice().millis(10..100));
    proxy.cut_clients();
    let again = acquire(&locks, "a", ttl);
    let value = rig.holder("a");
    proxy.let_go();
    sleep(millis(100));
    assert_eq!(rig.holder("a"), value, "the late release is of another claim");
    assert!(again.check());
    let _ = releasing.join().unwrap();
    again.release_blocking().unwrap();
}

#[test]
fn f12_one_renewal_is_lost() {
    let (rig, ttl) = (Rig::new(), millis(2000));
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(dice().millis(0..600));
    proxy.hold_requests();
    sleep(ttl / 3);
    proxy.lose();
    sleep(2 * ttl);
    assert!(guard.check(), "renewed again within its lease");
    guard.release_blocking().unwrap();
}

#[test]
fn f13_partition_while_holding() {
    let (rig, ttl) = (Rig::new(), millis(800));
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(dice().millis(0..500));
    proxy.hold_requests();
    proxy.hold_answers();
    let begin = Instant::now();
    let lost = spawn({
        let lost = guard.lost();
        move || (pollster::block_on(lost), Instant::now())
    });
    let next = acquire(&rig.locks(), "a", ttl);
    assert!(!guard.check(), "I1: nobody is granted before the holder knows");
    let (loss, told) = lost.join().unwrap();
    assert_eq!(loss, Loss::Lapsed);
    assert!(told - begin < ttl + SLACK, "without a word of the server: {:?}", told - begin);
    assert!(next.check());
}

#[test]
fn f14_release_while_a_renewal_is_under_way() {
    let (rig, ttl, mut dice) = (Rig::new(), millis(600), dice());
    let (proxy, locks) = rig.proxied();
    for _ in 0..8 {
        let guard = acquire(&locks, "a", ttl);
        // Renewed every third of the lease.
        sleep(ttl / 3 - millis(20) + dice.millis(0..40));
        proxy.hold_answers();
        let releasing = spawn(move || guard.release_blocking());
        sleep(dice.millis(0..30));
        proxy.let_go();
        releasing.join().unwrap().unwrap();
        assert_eq!(rig.left("lock:a"), -2);
        sleep(ttl / 2);
        assert_eq!(rig.left("lock:a"), -2, "a renewal brought it back");
    }
}

#[test]
fn f73_grant_whose_reply_is_lost() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(30));
    let (proxy, locks) = rig.proxied();
    proxy.hold_answers();
    let request = locks.mutex("a").ttl(ttl).blocking();
    let begin = Instant::now();
    let waiting = spawn(move || request.acquire_within(PATIENCE));
    until("it was granted", || rig.left("lock:a") > 0);
    sleep(dice().millis(0..200));
    proxy.lose();
    let guard = waiting.join().unwrap().unwrap();
    assert!(begin.elapsed() < ttl / 3, "adopted or cleaned up, not waited out: {:?}", begin.elapsed());
    assert!(rig.left("lock:a") + 2 >= guard.remaining().unwrap().as_millis() as i64, "I2");
    guard.release_blocking().unwrap();
    assert_eq!(rig.left("lock:a"), -2);
}

#[test]
fn f78_idle_connections_are_dropped_in_silence() {
    let (rig, ttl) = (Rig::new(), Duration::from_secs(8));
    let ((held, holder), (waits, waiter)) = (rig.proxied(), rig.proxied());
    let guard = acquire(&holder, "a", ttl);
    let waiting = spawn(move || waiter.mutex("a").blocking().acquire_within(PATIENCE));
    until("it waits", || rig.waiters("a") == 1);
    sleep(dice().millis(0..500));
    for proxy in [&held, &waits] {
        proxy.hold_requests();
        proxy.hold_answers();
    }
    sleep(ttl + ttl / 2);
    assert!(guard.check(), "renewed on another connection");
    guard.release_blocking().unwrap();
    let begin = Instant::now();
    let next = waiting.join().unwrap().unwrap();
    assert!(begin.elapsed() < SLACK, "on a connection that hears: {:?}", begin.elapsed());
    next.release_blocking().unwrap();
}

//! Leases that end under their claims.

use std::{
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use leasehold::{ErrorKind, Loss};
use nix::sys::signal::Signal;

use crate::{
    etcd_rig::{EXPIRY, Rig, SHORTEST},
    rig::{Holder, PATIENCE, SLACK, acquire, dice, millis, until},
};

#[test]
fn f01_pause_beyond_a_lease_of_etcd() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    let mut holder = Holder::start(&rig.url(), "a", ttl);
    assert_eq!(holder.ask("spin 4000"), "spinning");
    sleep(dice().millis(0..800));
    holder.signal(Signal::SIGSTOP);
    let next = acquire(&rig.locks(), "a", ttl);
    assert!(next.token().number > holder.token);
    pollster::block_on(rig.locks().etcd_fence("a").unwrap().seal(next.token())).unwrap();
    sleep(2 * ttl);
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.hear(), "false", "the first look after the pause");
    assert_eq!(holder.ask("write"), "Fenced");
    assert_eq!(holder.ask("lost"), "Lapsed");
    assert!(holder.ask("release").starts_with("Lost"));
    assert!(next.check(), "the late release harmed nobody");
}

#[test]
fn f41_lease_of_a_waiter_is_revoked() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a", Duration::from_secs(30));
    let waiter = rig.locks();
    let waiting = spawn(move || waiter.mutex("a").ttl(SHORTEST).blocking().acquire_within(PATIENCE));
    until("it waits", || rig.line("a").len() == 2);
    sleep(dice().millis(0..700));
    let (place, lease) = rig.line("a")[1];
    rig.revoke(lease);
    until("it has a new place", || rig.line("a").len() == 2);
    let (new_place, new_lease) = rig.line("a")[1];
    assert!(new_place > place && new_lease != lease, "its old key is gone for good");
    assert!(!waiting.is_finished() && guard.check());
    guard.release_blocking().unwrap();
    let begin = Instant::now();
    let next = waiting.join().unwrap().unwrap();
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());
    assert_eq!(next.token().number, new_place);
    next.release_blocking().unwrap();
    assert!(rig.line("a").is_empty());
}

#[test]
fn f41_waiter_is_stopped_beyond_its_lease_and_its_turn_comes_meanwhile() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a", Duration::from_secs(30));
    let mut waiter = Holder::begin(&rig.url(), "a", SHORTEST, &[]);
    until("it waits", || rig.line("a").len() == 2);
    let (place, _) = rig.line("a")[1];
    sleep(dice().millis(0..700));
    waiter.signal(Signal::SIGSTOP);
    // What it waits for is deleted first, so what it reads when it runs again is that it is its turn.
    guard.release_blocking().unwrap();
    let third = acquire(&rig.locks(), "a", Duration::from_secs(30));
    waiter.signal(Signal::SIGCONT);
    until("it has a new place", || rig.line("a").len() == 2);
    assert!(third.check(), "I1: nobody took it from who holds");
    third.release_blocking().unwrap();
    waiter.granted();
    assert!(waiter.token > place, "not by its dead key");
    assert_eq!((waiter.ask("check").as_str(), waiter.ask("release").as_str()), ("true", "ok"));
}

#[test]
fn f43_lease_is_revoked_under_a_hold() {
    let (rig, ttl, mut dice) = (Rig::new(), SHORTEST, dice());
    let (proxy, locks) = rig.proxied();
    for late in [false, false, true, true] {
        let guard = acquire(&locks, "a", ttl);
        // Also while a renewal is under way, whose answer says that all is well.
        sleep(dice.millis(0..700));
        if late {
            proxy.hold_answers();
            sleep(dice.millis(0..300));
        }
        rig.revoke(rig.line("a")[0].1);
        let begin = Instant::now();
        proxy.let_go();
        let next = acquire(&rig.locks(), "a", ttl);
        until("it is told", || !guard.check());
        assert!(begin.elapsed() < ttl / 3 + SLACK, "at the next renewal: {:?}", begin.elapsed());
        assert_eq!(pollster::block_on(guard.lost()), Loss::Gone);
        assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
        assert!(next.check(), "the release harmed nobody");
        next.release_blocking().unwrap();
    }
}

#[test]
fn f43_lease_is_revoked_under_a_hold_that_nobody_hears_of() {
    let (rig, ttl) = (Rig::new(), SHORTEST);
    let (proxy, locks) = rig.proxied();
    let guard = acquire(&locks, "a", ttl);
    sleep(dice().millis(0..700));
    proxy.hold_answers();
    rig.revoke(rig.line("a")[0].1);
    let begin = Instant::now();
    until("its own deadline passes", || !guard.check());
    assert!(begin.elapsed() < ttl, "{:?}", begin.elapsed());
    proxy.let_go();
    sleep(millis(300));
    assert!(!guard.check(), "no late answer revives it");
    let begin = Instant::now();
    acquire(&locks, "a", ttl).release_blocking().unwrap();
    assert!(begin.elapsed() < ttl + EXPIRY + SLACK, "{:?}", begin.elapsed());
}

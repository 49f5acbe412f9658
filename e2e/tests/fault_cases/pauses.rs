//! Processes that are stopped for a while or killed.

use std::thread::sleep;

use leasehold::Previous;
use leasehold_testkit::stopwatch::Stopwatch;
use nix::sys::signal::Signal;

use crate::rig::{Holder, LONG, Rig, SLACK, acquire, millis, pause_beyond_the_lease, rng, until};

#[test]
fn f01_pause_beyond_the_lease() {
    let (rig, ttl) = (Rig::new(), millis(600));
    pause_beyond_the_lease(&rig.url(), ttl, 0..400, 3 * ttl, |locks, next| {
        pollster::block_on(locks.redis_fence("a").unwrap().seal(next.token())).unwrap();
    });
}

#[test]
fn f04_pause_between_the_check_and_the_write() {
    // With a ttl that outlasts stalls of the machine before the check, and that the test then waits out.
    let (rig, ttl) = (Rig::new(), millis(3000));
    let mut holder = Holder::start(&rig.url(), "a", ttl);
    sleep(rng().millis(0..300));
    assert_eq!(holder.ask("check"), "true");
    assert_eq!(holder.ask("write"), "ok");
    holder.signal(Signal::SIGSTOP);
    // The stopped process executes this command when it is resumed.
    holder.send("write");
    let next = acquire(&rig.locks(), "a", ttl);
    pollster::block_on(rig.locks().redis_fence("a").unwrap().seal(next.token())).unwrap();
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.receive(), "Fenced");
    assert_eq!(rig.command(&["GET", "written"]), "1");
}

#[test]
fn f20_panic_and_abort_in_the_section() {
    let (rig, ttl) = (Rig::new(), millis(700));
    let locks = rig.locks();
    let guard = acquire(&locks, "a", LONG);
    let unwound = std::thread::spawn(move || {
        let _held = guard;
        panic!("in the section");
    });
    assert!(unwound.join().is_err());
    let next = acquire(&rig.locks(), "a", LONG);
    assert_eq!(next.previous(), Previous::Abandoned);
    next.release_blocking().unwrap();
    let mut holder = Holder::start(&rig.url(), "a", ttl);
    sleep(rng().millis(0..300));
    holder.send("abort");
    let watch = Stopwatch::start();
    let next = acquire(&rig.locks(), "a", ttl);
    assert_eq!(next.previous(), Previous::Lapsed);
    watch.assert_within(ttl + SLACK, "the lease expires");
}

#[test]
fn f24_crash_while_acquiring() {
    let (rig, ttl, mut rng) = (Rig::new(), millis(500), rng());
    let key = |round| format!("lock:a{round}");
    for round in 0..12 {
        let mut holder = Holder::start(&rig.url(), &format!("a{round}"), ttl);
        holder.send("cycle");
        sleep(rng.millis(5..60));
        holder.signal(Signal::SIGKILL);
        drop(holder);
        let left = rig.left(&key(round));
        assert!(left == -2 || (0..=500).contains(&left), "a lock without an expiry: {left}");
    }
    until("all locks expire", || (0..12).all(|round| rig.left(&key(round)) == -2));
}

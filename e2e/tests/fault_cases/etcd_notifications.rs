//! etcd: watches that break, and revisions that are compacted.

use std::{
    thread::{sleep, spawn},
    time::Duration,
};

use leasehold_testkit::stopwatch::Stopwatch;

use crate::{
    etcd_rig::Rig,
    rig::{LONG, PATIENCE, SLACK, acquire, millis, rng, until},
};

/// The time of a reconnect: the first attempt is at once, the next one a little later.
const RECONNECT: Duration = Duration::from_millis(1100);

/// Raises the revision, and compacts all earlier revisions.
fn compact(rig: &Rig) {
    for value in 0..5 {
        rig.server.command(&["put", "other", &value.to_string()]);
    }
    rig.server.command(&["compact", &rig.revision().to_string()]);
}

#[test]
fn f46_compaction_and_a_reset_while_a_waiter_waits() {
    let (rig, mut rng) = (Rig::new(), rng());
    let (proxy, waiter) = rig.proxied();
    let holder = rig.locks();
    for released_meanwhile in [false, true, false, true] {
        let guard = acquire(&holder, "a", LONG);
        let request = waiter.mutex("a").ttl(LONG).blocking();
        let waiting = spawn(move || request.acquire_within(PATIENCE));
        until("it waits", || rig.queue_keys("a").len() == 2);
        compact(&rig);
        sleep(rng.millis(0..100));
        if released_meanwhile {
            // The key ahead of the waiter is deleted and compacted while the waiter has no connection.
            proxy.block();
            guard.release_blocking().unwrap();
            compact(&rig);
            proxy.unblock();
        } else {
            proxy.reset();
            sleep(rng.millis(0..100));
            guard.release_blocking().unwrap();
        }
        let watch = Stopwatch::start();
        let next = waiting.join().unwrap().unwrap();
        watch.assert_within(RECONNECT + SLACK, "the waiter is granted");
        next.release_blocking().unwrap();
    }
}

#[test]
fn f46_watch_from_a_revision_that_is_compacted() {
    let rig = Rig::new();
    let (proxy, waiter) = rig.proxied();
    let guard = acquire(&rig.locks(), "a", LONG);
    let request = waiter.mutex("a").ttl(LONG).blocking();
    proxy.hold_answers();
    let waiting = spawn(move || request.acquire_within(PATIENCE));
    until("it waits", || rig.queue_keys("a").len() == 2);
    // The waiter learns its position at a revision that is compacted by then; its watch would have to begin there.
    compact(&rig);
    guard.release_blocking().unwrap();
    compact(&rig);
    sleep(rng().millis(0..200));
    let watch = Stopwatch::start();
    proxy.release_held();
    let next = waiting.join().unwrap().unwrap();
    watch.assert_within(millis(250) + SLACK, "the waiter asks instead");
    next.release_blocking().unwrap();
}

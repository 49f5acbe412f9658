//! A server that goes back to what it was: what was granted since is as if it had never been.

use std::{thread::sleep, time::Duration};

use leasehold::{ErrorKind, Loss};
use leasehold_testkit::{room::with_room, stopwatch::Stopwatch};

use crate::{
    etcd_rig::{EXPIRY, Rig, SHORTEST},
    rig::{LONG, PATIENCE, SLACK, acquire, rng, until},
};

#[test]
fn f47_older_state_is_restored() {
    let mut rig = Rig::new();
    let (holder, other) = (rig.locks(), rig.locks());
    acquire(&holder, "a", LONG).release_blocking().unwrap();
    rig.server.save();
    rig.server.restart();
    for _ in 0..20 {
        acquire(&other, "a", LONG).release_blocking().unwrap();
    }
    let guard = acquire(&holder, "a", SHORTEST * 2);
    let fence = holder.etcd_fence("resource").unwrap();
    sleep(rng().millis(0..500));
    rig.server.restore();
    rig.server.restart();
    until("the hold is told lost", || !guard.check());
    assert!(matches!(pollster::block_on(guard.lost()), Loss::Gone | Loss::Lapsed));
    assert!(guard.release_blocking().unwrap_err().is_lost());
    // Whoever saw the larger tokens believes in no smaller one.
    for locks in [&holder, &other] {
        let error = locks.mutex("a").ttl(SHORTEST).blocking().acquire_within(PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost(Loss::TokenWentBack), "{error}");
    }
    until("nothing is left of what was refused", || rig.queue_keys("a").is_empty());
    // Who saw none cannot know: that is what the note of the guarantee is for.
    let newcomer = acquire(&rig.locks(), "a", LONG);
    pollster::block_on(fence.seal(newcomer.token())).unwrap();
    newcomer.release_blocking().unwrap();
    let guarantee = pollster::block_on(holder.guarantee()).unwrap();
    assert!(guarantee.to_string().contains("older snapshot"), "{guarantee:?}");
}

#[test]
fn f47_restored_hold_lasts_until_its_lease_ends() {
    with_room(SHORTEST * 3, "a hold lives through a restart of its server", restored);
}

/// Whether the hold lived until it was released, before the older state was restored.
fn restored(ttl: Duration) -> bool {
    let mut rig = Rig::new();
    let (holder, waiter) = (rig.locks(), rig.locks());
    let guard = acquire(&holder, "a", ttl);
    rig.server.save();
    rig.server.restart();
    if guard.release_blocking().is_err() {
        return false;
    }
    // Its program is gone: one that lived would keep its lease alive, and with it what stands on it again.
    drop(holder);
    rig.server.restore();
    rig.server.restart();
    assert_eq!(rig.queue_keys("a").len(), 1, "its key is there again");
    let watch = Stopwatch::start();
    acquire(&waiter, "a", LONG).release_blocking().unwrap();
    // A leader that is new gives every lease its whole time again, and the time of an election.
    watch.assert_within(ttl + SHORTEST + EXPIRY + SLACK, "it is free");
    true
}

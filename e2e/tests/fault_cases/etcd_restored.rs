//! etcd: an older state is restored, without the grants since then.

use std::{thread::sleep, time::Duration};

use leasehold::{ErrorKind, Loss};
use leasehold_testkit::{lease_retries::with_longer_leases, stopwatch::Stopwatch};

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
    until("the loss is reported", || !guard.check());
    assert!(matches!(pollster::block_on(guard.lost()), Loss::Gone | Loss::Lapsed));
    assert!(guard.release_blocking().unwrap_err().is_lost());
    // A client that saw larger tokens refuses a grant with a smaller one.
    for locks in [&holder, &other] {
        let error = locks.mutex("a").ttl(SHORTEST).blocking().acquire_within(PATIENCE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost(Loss::TokenWentBack), "{error}");
    }
    until("no key of a refused grant remains", || rig.queue_keys("a").is_empty());
    // A client that saw no token cannot know. The guarantee has a note about that.
    let newcomer = acquire(&rig.locks(), "a", LONG);
    pollster::block_on(fence.seal(newcomer.token())).unwrap();
    newcomer.release_blocking().unwrap();
    let guarantee = pollster::block_on(holder.guarantee()).unwrap();
    assert!(guarantee.to_string().contains("older snapshot"), "{guarantee:?}");
}

#[test]
fn f47_restored_hold_lasts_until_its_lease_ends() {
    with_longer_leases(SHORTEST * 3, "the hold outlasts a restart of its server", restored);
}

/// Returns false if the hold expired before its release, on a slow machine.
fn restored(ttl: Duration) -> bool {
    let mut rig = Rig::new();
    let (holder, waiter) = (rig.locks(), rig.locks());
    let guard = acquire(&holder, "a", ttl);
    rig.server.save();
    rig.server.restart();
    if guard.release_blocking().is_err() {
        return false;
    }
    // End the client: it would renew its lease, and with the lease the restored key.
    drop(holder);
    rig.server.restore();
    rig.server.restart();
    assert_eq!(rig.queue_keys("a").len(), 1, "the key of the hold is restored");
    let watch = Stopwatch::start();
    acquire(&waiter, "a", LONG).release_blocking().unwrap();
    // A new leader gives every lease its whole ttl again, and the time of an election.
    watch.assert_within(ttl + SHORTEST + EXPIRY + SLACK, "the name is free");
    true
}

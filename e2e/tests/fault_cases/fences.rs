//! Fences, which protect the resource from outdated holders.

use leasehold_e2e::results::{ResultStore, WriteOutcome};

use crate::rig::{Rig, acquire, millis, rng};

#[test]
fn f70_fence_outlives_a_restart() {
    let mut rig = Rig::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = rig.locks();
    let old = acquire(&locks, "a", millis(1000)).token();
    let new = acquire(&locks, "a", millis(1000)).token();
    let fence = locks.redis_fence("resource").unwrap();
    pollster::block_on(fence.write(new, &[&["SET", "resource", "new"]])).unwrap();
    std::thread::sleep(rng().millis(0..50));
    rig.server.kill();
    rig.server.restart();
    let fence = rig.locks().redis_fence("resource").unwrap();
    let late = pollster::block_on(fence.write(old, &[&["SET", "resource", "old"]]));
    assert!(late.unwrap_err().is_fenced());
    assert_eq!(rig.command(&["GET", "resource"]), "new");
}

#[test]
fn f79_stale_holder_writes_before_the_first_write_of_the_next() {
    let (rig, dir) = (Rig::new(), tempfile::tempdir().unwrap());
    let (locks, results) = (rig.locks(), ResultStore::new(dir.path()));
    let stale = acquire(&locks, "a", millis(1000)).token();
    let next = acquire(&locks, "a", millis(1000)).token();
    // Without a fence, a write of the stale holder after the read of the next holder is lost.
    let late =
        |fence| move |results: &ResultStore, list: &str| results.append(list, 1, fence, || ()).unwrap();
    let outcome = results
        .append("open", 2, None, || assert_eq!(late(None)(&results, "open"), WriteOutcome::Done))
        .unwrap();
    assert_eq!((outcome, results.lost_elements("open").unwrap()), (WriteOutcome::Done, 1));
    // With a fence the next holder seals before it reads, and from then on the stale holder is refused.
    let between = || assert_eq!(late(Some(stale))(&results, "sealed"), WriteOutcome::Fenced);
    assert_eq!(results.append("sealed", 2, Some(next), between).unwrap(), WriteOutcome::Done);
    assert_eq!(results.lost_elements("sealed").unwrap(), 0);
    // The next holder reads what the stale holder wrote before the seal.
    assert_eq!(results.append("early", 1, Some(stale), || ()).unwrap(), WriteOutcome::Done);
    assert_eq!(results.append("early", 2, Some(next), || ()).unwrap(), WriteOutcome::Done);
    assert_eq!(
        (results.acknowledged("early").unwrap().len(), results.lost_elements("early").unwrap()),
        (2, 0)
    );
}

//! Readers of one name have separate leases.

use std::{sync::mpsc::channel, thread::spawn, time::Duration};

use crate::rig::{PATIENCE, Rig};

/// F40: the lease of one reader does not affect other readers, and a reader waits for writers ahead of it.
#[test]
fn readers_expire_separately_and_writers_keep_their_position() {
    let rig = Rig::new();
    let [first, second, third, fourth] = [(); 4].map(|()| rig.locks());
    let read = |locks: &leasehold_core::Locks, ttl| {
        locks.rw("a").read().ttl(ttl).renew(false).blocking().acquire_within(PATIENCE).unwrap()
    };
    let long = read(&first, Duration::from_secs(600));
    let short = read(&second, Duration::from_secs(1));
    rig.until("the short lease expires", || rig.show("a").holders.len() == 1);
    assert!(!short.check() && long.check());
    let remaining_ms: u64 = rig.command(&["PTTL", "lock:a"]).parse().unwrap();
    assert!(remaining_ms > 300_000, "the lock lasts as long as the other reader: {remaining_ms} ms");
    let (report, reports) = channel();
    let report_too = report.clone();
    let writing = spawn(move || {
        let guard = third.rw("a").write().blocking().acquire_within(PATIENCE).unwrap();
        report.send("writer").unwrap();
        guard
    });
    rig.until("the writer waits", || rig.show("a").waiters.len() == 1);
    let reading = spawn(move || {
        let guard = fourth.rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
        report_too.send("reader").unwrap();
        guard
    });
    rig.until("the later reader waits behind it", || rig.show("a").waiters.len() == 2);
    long.release_blocking().unwrap();
    assert_eq!(reports.recv_timeout(PATIENCE), Ok("writer"));
    let writer = writing.join().unwrap();
    assert!(reports.try_recv().is_err(), "the writer holds it alone");
    writer.release_blocking().unwrap();
    assert_eq!(reports.recv_timeout(PATIENCE), Ok("reader"));
    reading.join().unwrap().release_blocking().unwrap();
    drop(short);
}

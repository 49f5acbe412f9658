//! The option `wait`: a grant or renewal counts only when replicas have it.

use std::{thread::spawn, time::Duration};

use leasehold_core::ErrorKind;
use leasehold_testkit::server::RedisSentinelOptions;

use crate::{
    rig::{PATIENCE, acquire, major},
    sentinel_rig::{SentinelRig, late_failover, locks_of},
};

fn rig() -> SentinelRig {
    let mut rig =
        SentinelRig::new(RedisSentinelOptions { down_after: Duration::from_secs(120), ..late_failover() });
    rig.config = rig.config.wait(2);
    rig
}

/// The replication offset of the master, then the offsets that its replicas reported.
fn offsets(rig: &SentinelRig) -> Vec<u64> {
    let info = rig.redis.command(0, &["INFO", "replication"]).join("\n");
    let after = |key: &str| -> Vec<u64> {
        let parts = info.split(key).skip(1);
        parts.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
    };
    [after("master_repl_offset:"), after(",offset=")].concat()
}

/// F27: the engine must write on the connection first, because `WAIT` succeeds at once on a connection without a write.
#[test]
fn a_grant_on_too_few_replicas_is_withdrawn() {
    let mut rig = rig();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    // The test waits until the replicas have reported that they have all writes so far.
    let newest = offsets(&rig)[0];
    rig.until("both replicas reported the offset", || {
        offsets(&rig)[1..].iter().filter(|&&offset| offset >= newest).count() == 2
    });
    rig.redis.pause(1);
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "a definite answer: {error}");
    assert!(error.to_string().contains("only 1 of the 2 replicas"), "{error}");
    assert!(!rig.has(0, "lock:a"), "the grant was released");
    let error = locks.all().mutex("a").mutex("b").blocking().try_acquire().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("only 1 of the 2 replicas"), "{error}");
    assert!(!rig.has(0, "lock:a") && !rig.has(0, "lock:b"), "both grants were released");
    // A claim that gives up waiting gets the same error, because no other claim holds the name.
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_secs(4)).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("only 1 of the 2 replicas"), "{error}");
    let waiting = spawn(move || locks.mutex("a").blocking().acquire_within(PATIENCE).map(drop));
    rig.until("the claim is tried again", || rig.has(0, "lock:a"));
    rig.redis.resume(1);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_renewal_on_too_few_replicas_does_not_count() {
    let mut rig = rig();
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(Duration::from_secs(30)).blocking().acquire_within(PATIENCE).unwrap();
    guard.confirm_blocking().unwrap();
    rig.redis.pause(2);
    let error = guard.confirm_blocking().unwrap_err();
    assert!(error.to_string().contains("only 1 of the 2 replicas"), "{error}");
    rig.redis.resume(2);
    rig.until("it counts again", || guard.confirm_blocking().is_ok());
}

/// A release pushes a grant before any replica has it.
#[test]
fn a_pushed_grant_counts_once_the_replicas_have_it() {
    let mut rig = rig();
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let (report, reports) = std::sync::mpsc::channel();
    let waiting = spawn(move || {
        let guard = other.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
        report.send(()).unwrap();
        guard.release_blocking().unwrap();
    });
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.redis.pause(1);
    guard.release_blocking().unwrap();
    rig.until("it is granted on the master", || {
        !rig.redis.command(0, &["GET", "lock:a"]).concat().is_empty()
    });
    assert!(reports.recv_timeout(Duration::from_secs(2)).is_err(), "not before the replicas have it");
    rig.redis.resume(1);
    reports.recv_timeout(PATIENCE).unwrap();
    waiting.join().unwrap();
}

/// F26: if all replicas have the hold, it survives the promotion of any of them.
#[test]
fn a_hold_on_all_replicas_survives_a_killed_master() {
    let mut rig = SentinelRig::new(late_failover());
    rig.config = rig.config.wait(2);
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(Duration::from_secs(600)).blocking().acquire_within(PATIENCE).unwrap();
    rig.redis.kill(0);
    let second = rig.redis.master();
    assert!(rig.has(second, "lock:a"));
    // Only one replica remains, so no renewal succeeds, but the lease of the grant still lasts.
    let (_, other) = (0, locks_of(rig.config.clone().wait(0)));
    let error = other.mutex("a").blocking().try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    drop(guard);
}

/// F28: with `min-replicas-to-write` a master without replicas grants nothing, from Redis 7.0 on. The guarantee reports
/// the setting, and whether it applies to scripts on this server.
#[test]
fn min_replicas_stops_grants_of_a_master_without_replicas() {
    let arguments = &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    let mut rig = SentinelRig::new(RedisSentinelOptions {
        arguments,
        down_after: Duration::from_secs(120),
        ..late_failover()
    });
    let locks = rig.locks();
    let guarantee = rig.runtime.block_on(locks.guarantee()).unwrap().to_string();
    assert!(!guarantee.contains("min-replicas-to-write is 0"), "{guarantee}");
    let stops = major(|words| rig.redis.command(0, words)) >= 7;
    assert_eq!(stops, guarantee.contains("A master without replicas stops granting"), "{guarantee}");
    let guard = locks.mutex("a").ttl(Duration::from_secs(600)).blocking().acquire_within(PATIENCE).unwrap();
    rig.redis.cut(0);
    if !stops {
        rig.until("it refuses commands that write", || rig.redis.answer(0, &["SET", "probe", "1"]).is_err());
        return acquire(&locks, "b").release_blocking().unwrap();
    }
    rig.until("it notices", || match locks.mutex("b").blocking().try_acquire() {
        Ok(guard) => guard.release_blocking().is_err(),
        Err(error) => error.is_refused(),
    });
    let error = guard.confirm_blocking().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("too few replicas"), "{error}");
}

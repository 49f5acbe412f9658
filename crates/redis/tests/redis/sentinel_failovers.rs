//! Fail-overs by Sentinels.

use std::{thread::spawn, time::Duration};

use leasehold_core::{ErrorKind, Guard, Loss};
use leasehold_testkit::{server::RedisSentinelOptions, stopwatch::Stopwatch};

use crate::{
    rig::{PATIENCE, acquire, major},
    sentinel_rig::{SentinelRig, config_of, late_failover, locks_of},
};

const LONG: Duration = Duration::from_secs(600);

fn acquire_long(rig: &SentinelRig, name: &str) -> (leasehold_core::Locks, Guard) {
    let locks = rig.locks();
    let guard = locks.mutex(name).ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    (locks, guard)
}

/// Whether one of our clients is connected to this node.
fn is_connected(rig: &SentinelRig, node: usize) -> bool {
    rig.redis.command(node, &["CLIENT", "LIST"]).join(" ").contains("leasehold:news:")
        || rig.redis.command(node, &["PUBSUB", "CHANNELS"]).join(" ").contains("leasehold:news:")
}

fn reports_master(rig: &SentinelRig, node: usize) -> bool {
    rig.redis.command(node, &["ROLE"])[0] == "master"
}

#[test]
fn holds_and_waiters_survive_a_killed_sentinel_master() {
    let mut rig = SentinelRig::new(late_failover());
    let (_locks, guard) = acquire_long(&rig, "a");
    let other = rig.locks();
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.replicate(0);
    rig.redis.kill(0);
    let second = rig.redis.master();
    rig.until("it is confirmed by the new master", || guard.check() && is_connected(&rig, second));
    let token = guard.token();
    guard.release_blocking().unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
}

/// For seconds after the fail-over, the old master still reports that it is the master, and would renew holds.
#[test]
fn holds_survive_a_planned_sentinel_fail_over() {
    let mut rig = SentinelRig::new(late_failover());
    let (_locks, guard) = acquire_long(&rig, "a");
    rig.replicate(0);
    let second = rig.redis.failover();
    let watch = Stopwatch::start();
    rig.until("the new master is connected to", || is_connected(&rig, second));
    watch.assert_within(Duration::from_millis(1500), "since a majority names the new master");
    assert!(reports_master(&rig, 0), "the old master was not demoted yet");
    rig.until("no client is connected to the old master", || !is_connected(&rig, 0));
    rig.until("it is confirmed", || guard.check());
    guard.release_blocking().unwrap();
    assert!(!rig.has(second, "lock:a") && rig.has(0, "lock:a"));
}

/// The Sentinel that leads the fail-over waits for a replica that cannot connect to the new master.
#[test]
fn an_unfinished_fail_over_is_followed() {
    let mut rig = SentinelRig::new(RedisSentinelOptions { failover_timeout: LONG, ..late_failover() });
    rig.redis.cut_between([1, 2]);
    let (locks, _guard) = acquire_long(&rig, "a");
    rig.redis.kill(0);
    let _ = rig.redis.master();
    acquire(&locks, "b").release_blocking().unwrap();
    let state =
        |sentinel| rig.redis.sentinel_command(sentinel, &["SENTINEL", "MASTER", "mymaster"]).join(" ");
    assert!(
        (0..3).any(|sentinel| state(sentinel).contains("failover_in_progress")),
        "the fail-over takes ten minutes"
    );
}

/// F25: a Sentinel that was cut off names the old master, which does not know that it was replaced. The order of the
/// Sentinels in the URL does not matter.
#[test]
fn a_stale_sentinel_and_the_old_master_are_ignored() {
    let mut rig = SentinelRig::new(late_failover());
    rig.redis.cut(0);
    rig.redis.cut_sentinel(0);
    let (locks, guard) = acquire_long(&rig, "a");
    let token = guard.token();
    let second = rig.redis.master();
    assert!(reports_master(&rig, 0) && rig.has(0, "lock:a"), "the old master still works");
    rig.until("the loss is reported", || !guard.check());
    assert_eq!(rig.redis.master_named_by(0), Some(0));
    let ports = rig.redis.sentinel_ports();
    for turn in 0..3 {
        let order: Vec<_> = (0..3).map(|index| format!("127.0.0.1:{}", ports[(index + turn) % 3])).collect();
        let locks = locks_of(config_of(&format!("redis+sentinel://{}/mymaster", order.join(","))));
        let guard = acquire(&locks, "a");
        assert!(guard.token() > token, "I4: tokens grow: {} after {token}", guard.token());
        assert!(rig.has(second, "lock:a"));
        guard.release_blocking().unwrap();
    }
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    drop(locks);
}

/// I4: the token counter of the new master lacks the newest tokens.
#[test]
fn tokens_grow_past_tokens_lost_in_a_fail_over() {
    let mut rig = SentinelRig::new(late_failover());
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    rig.replicate(0);
    rig.redis.cut(0);
    let newest = (0..100).map(|_| acquire(&locks, "a").token()).collect::<Vec<_>>()[99];
    let _ = rig.redis.master();
    rig.until("the new master grants", || {
        let next = acquire(&locks, "a");
        assert!(next.token() > newest, "{} after {newest}", next.token());
        !rig.has(0, "lock:a")
    });
}

/// The clock of the new master is ahead, so leases end early there.
#[test]
fn a_lease_ended_early_by_a_promoted_clock_is_reported_lost() {
    let mut rig = SentinelRig::new(RedisSentinelOptions { clocks: true, ..late_failover() });
    (1..3).for_each(|node| rig.redis.set_clock(node, 120));
    rig.redis.wait_until_stable();
    let locks = rig.locks();
    let ttl = Duration::from_secs(60);
    let guard = locks.mutex("a").ttl(ttl).renew(false).blocking().acquire_within(PATIENCE).unwrap();
    rig.replicate(0);
    rig.redis.kill(0);
    let second = rig.redis.master();
    if major(|words| rig.redis.command(second, words)) < 7 {
        // A master before Redis 7.0 sends its replicas the ttl of a key, not the time of its end.
        assert!(rig.has(second, "lock:a"), "the lease lasts there");
        return rig.until("it is confirmed there", || guard.check());
    }
    assert!(!rig.has(second, "lock:a"), "the lease has ended there");
    rig.until("the loss is reported", || !guard.check());
    let next = acquire(&locks, "a");
    assert!(next.check() && !guard.check());
}

/// A stopped master answers the requests in its socket when it runs again.
#[test]
fn answers_of_a_master_stopped_past_a_promotion_do_not_count() {
    let mut rig = SentinelRig::new(late_failover());
    let (_locks, guard) = acquire_long(&rig, "a");
    rig.replicate(0);
    rig.redis.pause(0);
    let confirmed = std::thread::scope(|scope| {
        let confirming = scope.spawn(|| guard.confirm_blocking());
        let second = rig.redis.master();
        rig.redis.command(second, &["SET", "lock:a", "theirs", "PX", "600000"]);
        rig.redis.resume(0);
        confirming.join().unwrap()
    });
    assert!(confirmed.is_err(), "the answer of the old master counted");
    rig.until("the loss is reported", || !guard.check());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
}

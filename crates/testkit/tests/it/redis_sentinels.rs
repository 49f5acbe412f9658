//! The private Redis with Sentinels.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::server::{RedisSentinelOptions, RedisSentinels};

/// The limit is far longer than it should take, because the machine may be busy.
const LOOKS: usize = 1200;
const LOOK: Duration = Duration::from_millis(50);

#[test]
fn a_killed_master_is_replaced_and_returns_as_a_replica() {
    let mut redis = RedisSentinels::start_with(calm());
    assert_eq!(redis.master(), 0);
    redis.command(0, &["SET", "name", "kept"]);
    // `WAIT` on a connection that has written nothing would wait for nothing.
    assert!(happens(|| [1, 2].iter().all(|&node| redis.command(node, &["GET", "name"]) == ["kept"])));
    redis.kill(0);
    let second = redis.master();
    assert_ne!(second, 0);
    assert_eq!(redis.command(second, &["GET", "name"]), ["kept"]);
    redis.command(second, &["SET", "name", "changed"]);
    redis.restart(0);
    redis.wait_until_stable();
    assert_eq!(redis.master(), second);
    assert!(happens(|| redis.command(0, &["GET", "name"]) == ["changed"]));
}

#[test]
fn a_planned_failover_leaves_the_old_master_writable_for_a_while() {
    let mut redis = RedisSentinels::start_with(calm());
    let second = redis.failover();
    assert_ne!(second, 0);
    assert_eq!(redis.command(second, &["SET", "name", "new"]), ["OK"]);
    // Sentinels accept the role that it reports for at least eight seconds.
    assert_eq!(redis.command(0, &["SET", "name", "old"]), ["OK"]);
    redis.wait_until_stable();
    assert!(redis.answer(0, &["SET", "name", "older"]).unwrap_err().starts_with("READONLY"));
    assert!(happens(|| redis.command(0, &["GET", "name"]) == ["new"]));
}

#[test]
fn a_partitioned_sentinel_still_names_the_old_master() {
    let mut redis = RedisSentinels::start_with(calm());
    redis.cut_sentinel(2);
    redis.kill(0);
    let second = redis.master();
    assert!(happens(|| [0, 1].map(|sentinel| redis.master_named_by(sentinel)) == [Some(second); 2]));
    assert_eq!(redis.master_named_by(2), Some(0));
    redis.heal_sentinel(2);
    assert!(happens(|| redis.master_named_by(2) == Some(second)));
}

#[test]
fn a_partitioned_master_is_replaced_and_still_takes_writes() {
    let mut redis = RedisSentinels::start_with(calm());
    redis.cut(0);
    let second = redis.master();
    assert_ne!(second, 0);
    assert_eq!(redis.command(0, &["ROLE"])[0], "master");
    assert_eq!(redis.command(0, &["SET", "name", "lost"]), ["OK"]);
    redis.heal(0);
    redis.wait_until_stable();
    assert_eq!(redis.master(), second);
    assert_eq!(redis.command(0, &["GET", "name"]), [""]);
}

#[test]
fn a_resumed_master_still_takes_writes_after_its_replacement() {
    let mut redis = RedisSentinels::start();
    redis.pause(0);
    let second = redis.master();
    assert_ne!(second, 0);
    redis.resume(0);
    assert_eq!(redis.command(0, &["SET", "name", "lost"]), ["OK"]);
}

#[test]
fn an_unfinished_failover_already_names_the_new_master() {
    let options = RedisSentinelOptions { failover_timeout: Duration::from_secs(600), ..calm() };
    let mut redis = RedisSentinels::start_with(options);
    redis.cut_between([1, 2]);
    redis.kill(0);
    let second = redis.master();
    assert!(happens(|| (0..3).all(|sentinel| redis.master_named_by(sentinel) == Some(second))));
    // The Sentinel that leads the fail-over reports the old master's address until the other replica has followed or
    // ten minutes have passed.
    assert_eq!((0..3).filter(|&sentinel| leads(&redis, sentinel)).count(), 1);
    redis.heal(1);
    assert!(happens(|| !(0..3).any(|sentinel| leads(&redis, sentinel))));
}

#[test]
fn a_sentinel_keeps_its_state_across_a_kill_and_a_pause() {
    let mut redis = RedisSentinels::start_with(calm());
    redis.kill_sentinel(0);
    redis.pause_sentinel(1);
    redis.resume_sentinel(1);
    let second = redis.failover();
    redis.restart_sentinel(0);
    assert!(happens(|| redis.master_named_by(0) == Some(second)));
    // Sentinels save what they learn.
    redis.kill_sentinel(0);
    redis.restart_sentinel(0);
    assert_eq!(redis.master_named_by(0), Some(second));
}

#[test]
fn nodes_and_sentinels_have_different_passwords() {
    let options = RedisSentinelOptions {
        password: Some("nodes"),
        sentinel_password: Some("of-sentinels"),
        ..Default::default()
    };
    let mut redis = RedisSentinels::start_with(options);
    assert!(redis.url().starts_with("redis+sentinel://:nodes@127.0.0.1:"));
    assert!(redis.url().ends_with("/mymaster"));
    assert_eq!(redis.sentinel_password(), Some("of-sentinels"));
    for port in redis.ports().into_iter().chain(redis.sentinel_ports()) {
        let refused = leasehold_testkit::server::redis_command(port, &["PING"]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("NOAUTH"));
    }
    redis.kill(0);
    assert_ne!(redis.master(), 0);
}

#[test]
fn nodes_have_separate_clocks_and_optional_persistence() {
    let arguments = &["--appendonly", "yes", "--appendfsync", "always"];
    let mut redis = RedisSentinels::start_with(RedisSentinelOptions { arguments, clocks: true, ..calm() });
    let now = |node| redis.command(node, &["TIME"])[0].parse::<u64>().unwrap();
    redis.set_clock(1, 100_000);
    assert!(now(1) >= now(0) + 50_000);
    redis.command(0, &["SET", "name", "kept"]);
    redis.kill(0);
    redis.restart(0);
    assert_eq!(redis.command(0, &["GET", "name"]), ["kept"]);
}

#[test]
fn a_manual_failover_keeps_client_connections() {
    let mut redis = RedisSentinels::start_with(calm());
    redis.failover_without_sentinels(2);
    assert!(redis.answer(0, &["SET", "name", "late"]).unwrap_err().starts_with("READONLY"));
    assert_eq!(redis.command(2, &["SET", "name", "new"]), ["OK"]);
}

#[test]
fn a_second_master_is_promoted_by_force() {
    let mut redis = RedisSentinels::start_with(calm());
    redis.promote(1);
    assert_eq!(redis.command(1, &["SET", "name", "here"]), ["OK"]);
    assert_eq!(redis.command(0, &["SET", "name", "there"]), ["OK"]);
}

/// Options with a long down-after time, so that a busy machine does not cause fail-overs.
fn calm() -> RedisSentinelOptions<'static> {
    RedisSentinelOptions { down_after: Duration::from_secs(5), ..RedisSentinelOptions::default() }
}

/// Whether a Sentinel leads a fail-over that is in progress.
fn leads(redis: &RedisSentinels, sentinel: usize) -> bool {
    let reply = redis.sentinel_command(sentinel, &["SENTINEL", "MASTER", redis.name()]);
    reply.windows(2).any(|pair| pair[0] == "flags" && pair[1].contains("failover_in_progress"))
}

fn happens(it: impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        sleep(LOOK * u32::from(look > 0));
        it()
    })
}

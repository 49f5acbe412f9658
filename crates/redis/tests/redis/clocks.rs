//! R3: server clocks that step forward or back, or differ from the client's clock.

use std::{thread::sleep, time::Duration};

use leasehold_core::{ErrorKind, Inspect, Level, Loss};
use leasehold_testkit::{lease_retries::with_longer_leases, server::RedisServer};

use crate::rig::{Rig, acquire};

/// A ttl for which no renewal is due during the test.
const TTL: Duration = Duration::from_secs(600);

#[test]
fn a_forward_clock_step_past_the_lease_is_reported_as_a_loss() {
    let rig = Rig::of(RedisServer::with_clock(&[]));
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    let token = guard.token();
    assert!(guard.remaining().unwrap() > TTL / 2);
    rig.server.set_clock(3600);
    // The answer to any request shows the holder's client that the clock stepped; a renewal would too, but none is due
    // here.
    let _ = acquire(&locks, "b").release_blocking();
    rig.until("the loss is reported", || !guard.check());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    let next = acquire(&other, "a");
    assert!(next.token() > token);
}

#[test]
fn a_small_forward_clock_step_causes_a_renewal() {
    let rig = Rig::of(RedisServer::with_clock(&[]));
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    let fixed = locks.mutex("f").ttl(TTL).renew(false).blocking().acquire().unwrap();
    rig.server.set_clock(200);
    // A server that reads its clock less often (Valkey) may grant this claim before it sees the step, and the step then
    // ends the hold.
    let _ = acquire(&locks, "b").release_blocking();
    let remaining_ms = |key: &str| rig.command(&["PTTL", key]).parse::<u64>().unwrap();
    rig.until("it is renewed", || remaining_ms("lock:a") > 590_000);
    rig.until("it is valid again", || guard.check() && fixed.check());
    assert!(
        Duration::from_millis(remaining_ms("lock:f")) + Duration::from_millis(1)
            >= fixed.remaining().unwrap()
    );
    guard.release_blocking().unwrap();
    fixed.release_blocking().unwrap();
}

#[test]
fn a_backward_clock_step_keeps_holds_and_token_order() {
    with_longer_leases(Duration::from_secs(2), "the renewals were in time", |ttl| {
        let rig = Rig::of(RedisServer::with_clock(&[]));
        let (locks, other) = (rig.locks(), rig.locks());
        let guard = locks.mutex("a").ttl(ttl).blocking().acquire().unwrap();
        let token = guard.token();
        rig.server.set_clock(-3600);
        sleep(ttl + ttl / 4);
        if !guard.check() || guard.release_blocking().is_err() {
            return false;
        }
        let next = acquire(&other, "a");
        assert!(next.token() > token, "{} after {token}", next.token());
        let counter_ttl: i64 = rig.command(&["TTL", "leasehold:{}tlock:"]).parse().unwrap();
        assert!(
            counter_ttl > 3600,
            "the counter lasts until an hour after the time of the token: {counter_ttl}"
        );
        true
    });
}

#[test]
fn a_hold_that_lapsed_while_the_clock_ran_away_is_not_released_from_the_next() {
    let rig = Rig::of(RedisServer::with_clock(&[]));
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    rig.server.set_clock(700);
    let next = acquire(&other, "a");
    assert!(next.token() > guard.token());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    assert!(next.check(), "the late release affects no other hold");
    next.release_blocking().unwrap();
}

#[test]
fn the_guarantee_reports_a_server_clock_far_from_the_client() {
    let rig = Rig::of(RedisServer::with_clock(&["--appendonly", "yes", "--appendfsync", "always"]));
    let engine = rig.engine();
    let clock_note = || {
        let guarantee = rig.run(engine.guarantee()).unwrap();
        assert_eq!(guarantee.level, Level::LeaseBounded);
        guarantee.notes.into_iter().find(|note| note.contains("ours")).unwrap_or_default()
    };
    assert_eq!(clock_note(), "");
    for (seconds, words) in [(3600, "ahead of ours"), (-3600, "behind ours")] {
        rig.server.set_clock(seconds);
        let note = clock_note();
        assert!(note.contains(words) && note.contains("not affected"), "{note}");
    }
    rig.server.set_clock(0);
    assert_eq!(clock_note(), "");
}

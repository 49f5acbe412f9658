//! Leases: how many there are, and what happens to claims when they end.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Engine, How, Locks, Loss, Notification};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::{
    lease_retries::with_longer_leases, panic_clock::PanicClock, scenarios::waiter_ahead_gives_up,
};

use crate::rig::{PATIENCE, Rig, acquire, release_of};

/// The most keys on one lease: `MAX_KEYS` of `src/session.rs`.
const KEYS_PER_LEASE: usize = 4096;

#[test]
fn holds_of_one_ttl_share_a_lease_until_it_is_full() {
    let rig = Rig::new();
    let engine = rig.engine();
    rig.run(async {
        let claims: Vec<_> = (0..=KEYS_PER_LEASE).map(|number| rig.claim(&format!("n{number}"))).collect();
        for batch in claims.chunks(256) {
            let answers = batch.iter().map(|claim| engine.claim(claim, How::Create));
            for answer in futures_util::future::join_all(answers).await {
                assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
            }
        }
    });
    assert_eq!(rig.leases(), 2, "{} holds", KEYS_PER_LEASE + 1);
    let short = leasehold_core::Claim { ttl: Duration::from_secs(5), ..rig.claim("short") };
    assert!(matches!(rig.run(engine.claim(&short, How::Create)), Ok(Answer::Held(_))));
    assert_eq!(rig.leases(), 3, "a crash of its holder is to free it after its own ttl");
}

/// The maintenance task panics; no other task keeps the leases alive.
#[test]
fn a_maintenance_task_that_panicked_is_restarted() {
    let rig = Rig::new();
    let (clock, env) = PanicClock::new("leasehold_core::client::maintenance::run_rounds");
    let locks = Locks::builder(Arc::new(EtcdEngine::new(rig.config.clone(), &env))).build();
    let guard = locks.mutex("a").ttl(Duration::from_secs(10)).blocking().acquire().unwrap();
    clock.arm();
    rig.until("the maintenance task dies", || clock.has_panicked());
    rig.until("the task runs again", || clock.is_asked_again());
    let remaining_before = guard.remaining();
    rig.until("its lease is kept alive", || guard.remaining() > remaining_before || !guard.check());
    guard.release_blocking().unwrap();
}

/// Renewals of many holds cost one request, and none is lost over several lease times.
#[test]
fn holds_last_while_their_lease_is_kept_alive() {
    let rig = Rig::new();
    with_longer_leases(Duration::from_secs(2), "all holds live on, by one lease", |ttl| {
        let locks = rig.locks();
        let hold =
            |number| locks.mutex(format!("n{number}")).ttl(ttl).blocking().acquire_within(PATIENCE).unwrap();
        let guards: Vec<_> = (0..50).map(hold).collect();
        std::thread::sleep(2 * ttl);
        let all_hold = guards.iter().all(leasehold_core::Guard::check);
        all_hold && rig.leases() == 1 && rig.keys().len() == 50
    });
}

#[test]
fn a_revoked_lease_ends_its_holds_and_its_waiters_queue_again() {
    let rig = Rig::new();
    let (locks, other) = (rig.locks(), rig.locks());
    let first = acquire(&other, "c");
    let (a, b) = (acquire(&locks, "a"), acquire(&locks, "b"));
    let waiting = {
        let locks = locks.clone();
        std::thread::spawn(move || locks.mutex("c").blocking().acquire_within(PATIENCE))
    };
    rig.until("it is queued", || rig.show("c").waiters.len() == 1);
    let first_id = rig.show("c").waiters[0].id.clone();
    // F41, F43: all keys on the lease are deleted together.
    let key = rig.keys().into_iter().find(|key| key.starts_with("/locks/a/")).unwrap();
    let output = rig.server.command(&["get", &key, "-w", "json"]).join("");
    let lease = output.split("\"lease\":").nth(1).unwrap();
    let lease: i64 = lease.split(['}', ',']).next().unwrap().parse().unwrap();
    rig.server.command(&["lease", "revoke", &format!("{lease:x}")]);
    for guard in [&a, &b] {
        let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await }).unwrap();
        assert_eq!(lost, Loss::Gone);
        assert!(!guard.check());
    }
    rig.until("it is queued again", || rig.show("c").waiters.iter().any(|waiter| waiter.id != first_id));
    first.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

/// R1: the hold is not renewed, although its client is well. The server does not know the deadline of the hold.
#[test]
fn a_hold_without_renewal_ends_on_a_lease_kept_alive() {
    let rig = Rig::new();
    with_longer_leases(Duration::from_secs(2), "the fixed hold ends, and the renewed one does not", |ttl| {
        let (locks, other) = (rig.locks(), rig.locks());
        let fixed = locks.mutex("a").ttl(ttl).renew(false).blocking().acquire_within(PATIENCE).unwrap();
        let renewed = locks.mutex("b").ttl(ttl).blocking().acquire_within(PATIENCE).unwrap();
        let next = acquire(&other, "a");
        assert!(!fixed.check(), "two hold");
        // The two leases: the lease of both holds, and the lease of the other client.
        let renewed_lives = renewed.check() && rig.leases() == 2;
        next.release_blocking().unwrap();
        renewed_lives
    });
}

#[test]
fn a_ttl_below_the_servers_minimum_is_refused_with_the_range() {
    let rig = Rig::new();
    let error = rig.locks().mutex("a").ttl(Duration::from_secs(1)).blocking().acquire().unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("2s"), "{error}");
}

/// The server may grant a longer lease than requested; the hold is valid for the requested time or less.
#[test]
fn leases_longer_than_requested_are_shared() {
    let rig = Rig::with(&["--heartbeat-interval=500", "--election-timeout=5000"]);
    let engine = rig.engine();
    for name in ["a", "b"] {
        let claim = leasehold_core::Claim { ttl: Duration::from_secs(3), ..rig.claim(name) };
        let answer = rig.run(engine.claim(&claim, How::Create));
        let Ok(Answer::Held(grant)) = answer else { panic!("{answer:?}") };
        assert!(grant.ttl.unwrap() <= claim.ttl, "{grant:?}");
    }
    assert_eq!(rig.leases(), 1);
}

#[test]
fn a_waiting_claim_that_is_released_leaves_no_key() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let (held, waits) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        assert!(matches!(engine.claim(&held, How::Create).await, Ok(Answer::Held(_))));
        assert!(matches!(other.claim(&waits, How::Create).await, Ok(Answer::Waiting(_))));
        other.release(&release_of(&waits)).await;
        engine.release(&release_of(&held)).await;
    });
    assert_eq!(rig.keys(), [""; 0]);
}

/// The server stores every key name that ever existed until its data is compacted, and each request scans all of these
/// names in the directory.
#[test]
fn repeated_holds_of_a_name_reuse_its_keys() {
    let rig = Rig::new();
    let engine = rig.engine();
    let mut keys = std::collections::BTreeSet::new();
    for round in 0..20 {
        let (one, two) = (rig.claim("a"), rig.claim("a"));
        rig.run(async {
            assert!(matches!(engine.claim(&one, How::Create).await, Ok(Answer::Held(_))));
            if round % 2 == 0 {
                assert!(matches!(engine.claim(&two, How::Create).await, Ok(Answer::Waiting(_))));
            }
            keys.extend(rig.keys());
            engine.release(&[&release_of(&one)[..], &release_of(&two)[..]].concat()).await;
        });
    }
    assert_eq!(keys.len(), 2, "{keys:?}");
}

/// I1: the key that a waiter waits for is deleted, while an older key still exists.
#[test]
fn a_waiter_whose_neighbour_gives_up_does_not_hold() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let (held, leaves, stays) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
    rig.run(async {
        waiter_ahead_gives_up(&*engine, &*other, (&held, &leaves, &stays)).await;
        engine.release(&release_of(&held)).await;
        // If its watch started only after the neighbour had gone, one more `Recheck` arrives.
        loop {
            let notification = tokio::time::timeout(PATIENCE, other.notifications()).await.unwrap();
            match notification.last() {
                Some(Notification::Granted { id, .. }) if *id == stays.id => break,
                Some(Notification::Recheck { id, .. }) if *id == stays.id => {
                    match other.claim(&stays, How::Ask).await {
                        Ok(Answer::Held(_)) => break,
                        Ok(Answer::Waiting(_)) => {}
                        answer => panic!("{answer:?}"),
                    }
                }
                _ => panic!("{notification:?}"),
            }
        }
        other.release(&release_of(&stays)).await;
    });
}

/// A cron job acquires one lock and leaves no lease.
#[test]
fn only_a_program_that_takes_more_locks_keeps_its_lease() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(rig.leases(), 0);
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(rig.leases(), 1, "the next one needs no request for it");
    let guard = acquire(&locks, "b");
    assert_eq!(rig.leases(), 1);
    assert!(rig.locks().mutex("b").blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(rig.leases(), 1, "nor does one that tries once");
    guard.release_blocking().unwrap();
}

#[test]
fn warming_up_makes_the_lease_of_the_first_lock() {
    let rig = Rig::new();
    let locks = rig.locks();
    locks.warm_blocking(Duration::from_secs(30)).unwrap();
    let leases = || rig.server.command(&["lease", "list"]);
    let before = leases();
    let guard = acquire(&locks, "a");
    assert_eq!((rig.leases(), leases()), (1, before), "the lock is on the lease that exists");
    guard.release_blocking().unwrap();
    assert_eq!(rig.keys(), [""; 0]);
}

/// F47: the claim exists again, on a lease that its client keeps alive for other claims.
#[test]
fn a_claim_revived_by_an_older_snapshot_ends_with_its_lease() {
    let mut rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "warm").release_blocking().unwrap();
    let other = acquire(&locks, "other");
    let guard = acquire(&locks, "a");
    rig.server.save();
    rig.server.restart();
    guard.release_blocking().unwrap();
    for _ in 0..5 {
        acquire(&locks, "later").release_blocking().unwrap();
    }
    rig.server.restore();
    rig.server.restart();
    let lost = rig.run(async { tokio::time::timeout(PATIENCE, other.lost()).await }).unwrap();
    assert!(matches!(lost, Loss::Gone | Loss::Lapsed | Loss::TokenWentBack), "{lost:?}");
    rig.until("the claim has ended", || !rig.keys().iter().any(|key| key.starts_with("/locks/a/")));
}

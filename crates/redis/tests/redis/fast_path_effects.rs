//! Effects that must be the same for the fast path of a verb and for its full script.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Grant, Hold, How, Mode, Previous, Release, Released, Renewed};
use leasehold_redis::RedisEngine;

use crate::rig::Rig;

async fn granted(engine: &RedisEngine, claim: &Claim) -> Grant {
    match engine.claim(claim, How::Create).await {
        Ok(Answer::Held(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

fn release_of(claim: &Claim, grant: &Grant) -> Release {
    Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: Some(grant.token),
        ended: Previous::Clean,
        min_hold: None,
    }
}

fn renewal(claim: &Claim, grant: &Grant, seconds: u64) -> Hold {
    Hold {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token: grant.token,
        ttl: Duration::from_secs(seconds),
    }
}

/// The ttl of the lock key in milliseconds after a hold of this mode was renewed for `seconds`. Other lock programs see
/// only this key.
fn lock_key_ttl_after_renewal(mode: Mode, seconds: u64) -> i64 {
    let rig = Rig::new();
    let (engine, claim) = (rig.engine(), Claim { mode, ..rig.claim("a") });
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        let renewed = engine.renew(&[renewal(&claim, &grant, seconds)]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]));
    });
    rig.command(&["PTTL", "lock:a"]).parse().unwrap()
}

#[test]
fn a_late_shorter_renewal_does_not_shorten_the_lease() {
    let remaining_ms = lock_key_ttl_after_renewal(Mode::Exclusive, 1);
    assert!(remaining_ms > 2000, "{remaining_ms} ms of 30 s");
}

#[test]
fn a_renewal_extends_the_lock_key_of_a_shared_hold() {
    let remaining_ms = lock_key_ttl_after_renewal(Mode::Shared, 60);
    assert!(remaining_ms > 30_000, "{remaining_ms} ms of 60 s");
}

#[test]
fn a_hand_over_skips_a_waiter_with_an_expired_entry() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let (first, second) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        // Raises the counter above the floor: until then the full script runs.
        granted(&other, &rig.claim("b")).await;
        let grant = granted(&engine, &first).await;
        assert!(matches!(other.claim(&second, How::Create).await, Ok(Answer::Waiting(_))));
        let entries = rig.server.command(&["--raw", "KEYS", "leasehold:{*}zlock:a"]).remove(0);
        rig.command(&["ZADD", &entries, "XX", "1", &second.id.to_string()]);
        assert!(matches!(engine.release(&[release_of(&first, &grant)]).await[..], [Released::Freed]));
    });
    let view = rig.show("a");
    assert!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
}

#[test]
fn a_hand_over_skips_a_waiter_whose_client_is_gone() {
    let rig = Rig::new();
    let (engine, gone, other) = (rig.engine(), rig.engine(), rig.engine());
    let (first, second, third) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
    let grant = rig.run(async {
        // Raises the counter above the floor: until then the full script runs.
        granted(&other, &rig.claim("b")).await;
        let grant = granted(&engine, &first).await;
        for (engine, claim) in [(&gone, &second), (&other, &third)] {
            assert!(matches!(engine.claim(claim, How::Create).await, Ok(Answer::Waiting(_))));
        }
        grant
    });
    drop(gone);
    let channels =
        || rig.server.command(&["PUBSUB", "CHANNELS"]).iter().filter(|line| !line.is_empty()).count();
    rig.until("its client has no subscription any more", || channels() == 2);
    let released = rig.run(async { engine.release(&[release_of(&first, &grant)]).await });
    assert!(matches!(released[..], [Released::Freed]));
    let view = rig.show("a");
    assert!(matches!(&view.holders[..], [holder] if holder.id == third.id.to_string()), "{view:?}");
}

/// An operator deleted the lock key, and a claim waits: only the head of the queue may get the name.
#[test]
fn a_single_claim_does_not_overtake_the_queue() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let (first, second, third) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
    rig.run(async {
        granted(&engine, &first).await;
        assert!(matches!(other.claim(&second, How::Create).await, Ok(Answer::Waiting(_))));
    });
    rig.command(&["DEL", "lock:a"]);
    let answer = rig.run(async { engine.claim(&third, How::Create).await });
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    let view = rig.show("a");
    assert!(matches!(&view.holders[..], [holder] if holder.id == second.id.to_string()), "{view:?}");
}

/// A server logs each load of a script and sends it to its replicas, so a second connection must not load a script
/// again.
#[test]
fn each_script_is_loaded_once_per_server() {
    let rig = Rig::new();
    let loads = || {
        let stats = rig.server.command(&["INFO", "commandstats"]);
        let line =
            stats.iter().find_map(|line| line.strip_prefix("cmdstat_script|load:calls=")).map(str::to_owned);
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    for _ in 0..5 {
        crate::rig::acquire(&rig.locks(), "a").release_blocking().unwrap();
    }
    assert_eq!(loads(), 2, "to claim and to release");
    let locks = rig.locks();
    let guard = crate::rig::acquire(&locks, "a");
    rig.command(&["SCRIPT", "FLUSH"]);
    guard.release_blocking().unwrap();
    crate::rig::acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(loads(), 4, "both again after a flush");
}

//! Redisson's layout: while Redisson has an exclusive hold, leasehold cannot acquire the lock, and vice versa.

use std::{
    thread::{JoinHandle, spawn},
    time::Duration,
};

use leasehold_core::{
    Answer, Broken, Claim, Engine, Grant, Guard, Hold, How, Inspect, Loss, Mode, Name, Previous, Release,
    Released, Renewed,
};
use leasehold_redis::RedisEngine;

use crate::{
    redisson_rig::{OWNER, redisson},
    rig::{PATIENCE, Rig, acquire},
};

const LOCK: &str = "redisson_lock__channel:{lock:a}";
const READ_WRITE: &str = "redisson_rwlock:{lock:a}";

async fn granted(engine: &RedisEngine, claim: &Claim) -> Grant {
    match engine.claim(claim, How::Create).await {
        Ok(Answer::Held(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    let Claim { id, name, mode, ttl, .. } = claim.clone();
    Hold { id, name, mode, token: grant.token, ttl }
}

fn release_of(claim: &Claim, grant: &Grant) -> Release {
    let Claim { id, name, mode, .. } = claim.clone();
    Release { id, name, mode, token: Some(grant.token), ended: Previous::Clean, min_hold: None }
}

fn waits(rig: &Rig) -> JoinHandle<Guard> {
    let locks = rig.locks();
    let before = rig.show("a").waiters.len();
    let waiting = spawn(move || acquire(&locks, "a"));
    rig.until("it waits", || rig.show("a").waiters.len() > before);
    waiting
}

/// The ways in which Redisson acquires an exclusive hold, each with its release.
const EXCLUSIVE_HOLDS: [(&[&str], &[&str]); 6] = [
    (&["lock"], &["unlock"]),
    (&["lock", "lock again", "unlock once", "renew"], &["unlock"]),
    (&["lock"], &["force unlock"]),
    (&["lock"], &["unlock spin"]),
    (&["lock fenced"], &["unlock"]),
    (&["write", "renew"], &["write unlock"]),
];

#[test]
fn an_exclusive_redisson_hold_excludes_every_mode() {
    let rig = redisson();
    let locks = rig.locks();
    for (takes, frees) in EXCLUSIVE_HOLDS {
        rig.redisson_runs(takes);
        for request in [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 3)].map(|r| r.blocking())
        {
            let error = request.try_acquire().unwrap_err();
            assert!(error.is_taken(), "{takes:?}: {error}");
        }
        let view = rig.show("a");
        let [holder] = &view.holders[..] else { panic!("{takes:?}: {view:?}") };
        assert_eq!((&*holder.id, holder.foreign, holder.token), (OWNER, true, None), "{takes:?}");
        assert!(holder.owner.starts_with("Redisson") && view.mode == Some(Mode::Exclusive), "{view:?}");
        assert!(holder.remaining.is_some_and(|remaining| remaining <= PATIENCE), "{holder:?}");
        let waiting = waits(&rig);
        rig.redisson_runs(frees);
        let guard = waiting.join().unwrap();
        assert!(!rig.redisson_can_lock() && !rig.redisson_can_read(), "{takes:?}");
        guard.release_blocking().unwrap();
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0", "{takes:?}");
    }
    assert_eq!(rig.show("a").holders.len(), 0);
}

#[test]
fn a_reentrant_redisson_hold_ends_with_its_last_unlock() {
    let rig = redisson();
    rig.redisson_runs(&["lock", "lock again"]);
    assert_eq!(rig.show("a").holders[0].owner, "Redisson, entered 2 times");
    rig.redisson_runs(&["unlock once"]);
    assert!(rig.locks().mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(rig.show("a").holders[0].owner, "Redisson");
}

#[test]
fn an_expired_redisson_hold_frees_the_name() {
    let rig = redisson();
    rig.redisson_runs(&["lock"]);
    let waiting = waits(&rig);
    rig.command(&["PEXPIRE", "lock:a", "50"]);
    waiting.join().unwrap().release_blocking().unwrap();
}

#[test]
fn an_exclusive_hold_excludes_every_kind_of_redisson_lock() {
    let rig = redisson();
    let locks = rig.locks();
    for request in [locks.mutex("a"), locks.rw("a").write(), locks.semaphore("a", 2)] {
        let guard = request.blocking().acquire_within(PATIENCE).unwrap();
        assert!(!rig.redisson_can_lock() && !rig.redisson_can_read() && !rig.redisson_can_write());
        let remaining = rig.millis_left("lock:a");
        assert!(remaining > 0 && remaining <= 30_000, "Redisson's waiters sleep for this time: {remaining}");
        let hash = rig.hash();
        assert_eq!((hash.len(), hash["mode"].as_str()), (2, "write"), "{hash:?}");
        let owner = hash.keys().find_map(|field| field.strip_suffix(":write")).unwrap();
        let (uuid, thread) = owner.split_once(':').unwrap();
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(
            (parts, hash[&format!("{owner}:write")].as_str()),
            (vec![8, 4, 4, 4, 12], "1"),
            "{hash:?}"
        );
        assert!(thread.starts_with('0') && thread.parse::<u64>().is_ok(), "{hash:?}");
        guard.release_blocking().unwrap();
        assert!(rig.redisson_can_lock() && rig.redisson_can_write());
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// A release publishes to both channels of Redisson. Without a message, Redisson's waiters sleep until the end of the
/// lease that they saw.
#[test]
fn a_release_wakes_every_kind_of_redisson_waiter() {
    let rig = redisson();
    let locks = rig.locks();
    let mut listener = rig.listen(&[LOCK, READ_WRITE]);
    for request in [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 2)] {
        request.blocking().acquire_within(PATIENCE).unwrap().release_blocking().unwrap();
        assert_eq!(listener.receive(), (LOCK.to_owned(), "0".to_owned()));
        assert_eq!(listener.receive(), (READ_WRITE.to_owned(), "1".to_owned()));
    }
    let guard = acquire(&locks, "a");
    let (engine, name) = (rig.engine(), Name::new("a").unwrap());
    rig.run(engine.break_hold(&name, guard.token().number, true)).unwrap();
    assert_eq!(listener.receive(), (LOCK.to_owned(), "0".to_owned()), "broken by force");
}

/// A hand-over from one of our claims to the next wakes no waiter of Redisson, because none could acquire the lock.
#[test]
fn a_hand_over_replaces_the_hash_and_wakes_no_redisson_waiter() {
    let mut rig = redisson();
    rig.config = rig.config.gap(Duration::ZERO);
    let mut listener = rig.listen(&[LOCK]);
    let (engine, other) = (rig.engine(), rig.engine());
    let (first, second) = (rig.claim("a"), rig.claim("a"));
    rig.run(async {
        let grant = granted(&engine, &first).await;
        let before = rig.hash();
        assert!(matches!(other.claim(&second, How::Create).await, Ok(Answer::Waiting(_))));
        assert!(matches!(engine.release(&[release_of(&first, &grant)]).await[..], [Released::Freed]));
        let after = rig.hash();
        assert!(before.len() == 2 && after.len() == 2 && before != after, "{before:?} {after:?}");
        assert!(after.values().any(|count| count == "2"), "the grant is not confirmed yet: {after:?}");
        let Ok(Answer::Held(grant)) = other.claim(&second, How::Ask).await else { panic!("it was granted") };
        assert!(rig.hash().values().any(|count| count == "1"));
        assert!(matches!(other.release(&[release_of(&second, &grant)]).await[..], [Released::Freed]));
    });
    assert_eq!(listener.receive().1, "0");
    assert_eq!(rig.command(&["PUBLISH", LOCK, "last"]), "1");
    assert_eq!(listener.receive().1, "last", "only the second release published a message");
}

#[test]
fn a_renewal_only_extends_and_a_loss_is_reported() {
    let rig = redisson();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        rig.command(&["PEXPIRE", "lock:a", "5000"]);
        let renewal = hold_of(&claim, &grant);
        assert!(matches!(engine.renew(std::slice::from_ref(&renewal)).await[..], [Renewed::Extended { .. }]));
        assert!(rig.millis_left("lock:a") > 20_000);
        let short = Hold { ttl: Duration::from_secs(1), ..renewal.clone() };
        assert!(matches!(engine.renew(&[short]).await[..], [Renewed::Extended { .. }]));
        assert!(rig.millis_left("lock:a") > 20_000);
        let mut wrong = renewal.clone();
        wrong.token.number += 1;
        assert!(matches!(engine.renew(&[wrong]).await[..], [Renewed::Lost(Loss::Gone)]));
        rig.redisson_runs(&["force unlock", "lock"]);
        assert!(matches!(engine.renew(&[renewal]).await[..], [Renewed::Lost(Loss::Overwritten)]));
        assert!(matches!(engine.release(&[release_of(&claim, &grant)]).await[..], [Released::NotThere]));
    });
    assert_eq!(rig.hash().keys().collect::<Vec<_>>(), [OWNER], "Redisson's hold is unchanged");
}

/// Whether a hold exists is decided by the lock key alone, as in the default layout.
#[test]
fn a_hold_without_its_side_keys_is_renewed_and_released() {
    let rig = redisson();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        for key in rig.server.command(&["--raw", "KEYS", "leasehold:{*}r*"]) {
            rig.command(&["DEL", &key]);
        }
        assert!(matches!(engine.renew(&[hold_of(&claim, &grant)]).await[..], [Renewed::Extended { .. }]));
        assert!(matches!(engine.claim(&rig.claim("a"), How::Create).await, Ok(Answer::Waiting(_))));
        assert!(matches!(engine.release(&[release_of(&claim, &grant)]).await[..], [Released::Freed]));
    });
}

#[test]
fn a_broken_hold_excludes_redisson_until_its_release() {
    let rig = redisson();
    let (engine, name) = (rig.engine(), Name::new("a").unwrap());
    let claim = rig.claim("a");
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        let broken = engine.break_hold(&name, grant.token.number, false).await.unwrap();
        assert_eq!(broken, Broken::Done);
        assert!(!rig.redisson_can_lock() && !rig.redisson_can_read());
        assert!(rig.millis_left("lock:a") > 0);
        assert!(matches!(engine.renew(&[hold_of(&claim, &grant)]).await[..], [Renewed::Lost(Loss::Broken)]));
        engine.release(&[release_of(&claim, &grant)]).await;
        assert!(rig.redisson_can_lock());
        rig.redisson_runs(&["lock"]);
        let broken = engine.break_hold(&name, grant.token.number, true).await.unwrap();
        assert_eq!(broken, Broken::NotHeld, "a hold of Redisson has no token of ours");
    });
    assert_eq!(rig.hash().keys().collect::<Vec<_>>(), [OWNER]);
}

#[test]
fn a_minimum_hold_excludes_redisson() {
    let rig = redisson();
    let guard = acquire(&rig.locks(), "a");
    rig.run(guard.release_at_least(PATIENCE)).unwrap();
    assert!(!rig.redisson_can_lock() && !rig.redisson_can_read() && !rig.redisson_can_write());
    assert!(rig.hash().keys().any(|field| field.starts_with("00000000-0000-0000-0000-000000000000:0")));
    assert!(rig.millis_left("lock:a") > 10_000);
}

/// Waiters of Redisson are not in our queue: they only listen for the end of the lock. They still get the lock.
#[test]
fn continuous_hand_overs_leave_gaps_for_redisson_waiters() {
    let rig = redisson();
    let mut listener = rig.listen(&[LOCK]);
    let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (locks, is_done) = (rig.locks(), std::sync::Arc::clone(&is_done));
            spawn(move || {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    acquire(&locks, "a").release_blocking().unwrap();
                }
            })
        })
        .collect();
    let took = |_: &u32| {
        assert_eq!(listener.receive().1, "0");
        // Acquires the lock in one step, like Redisson's script.
        let take = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
            redis.call('HINCRBY', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], 30000)";
        rig.command(&["EVAL", take, "1", "lock:a", OWNER]) == "1"
    };
    let tries = (0..1000).find(took);
    assert!(tries.is_some(), "the waiter was woken and never found the lock free");
    is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    rig.redisson_runs(&["unlock"]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

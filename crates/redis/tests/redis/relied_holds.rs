//! Holds whose value a program of the recipe `SETNX key time` replaced by a time in the past: no claim takes the key
//! over while a client may rely on such a hold.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, Hold, How, Mode, Previous, Renewed};
use leasehold_redis::StaleDeadline;

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of},
    rig::{PATIENCE, Rig},
};

/// How long a record outlives its hold, in ms, and by how much less it may outlive the hold.
const ENDED_LIFE: i64 = 3_600_000;
const RECORD_SLACK: i64 = 60_000;
/// A time in the past.
const PAST: &str = "1600000000";
const MODES: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, limit: 2 }];

impl Rig {
    /// Grants a claim of `a` with this ttl in ms.
    fn grant(&self, mode: Mode, ttl: u64) -> (Claim, Hold) {
        let claim = Claim { mode, ttl: Duration::from_millis(ttl), ..self.claim("a") };
        let Ok(Answer::Held(grant)) = self.run(self.engine().claim(&claim, How::Create)) else {
            panic!("the name is free")
        };
        let hold = hold_of(&claim, &grant);
        (claim, hold)
    }

    /// The key of the record of `a`.
    fn record(&self) -> String {
        self.command(&["KEYS", "leasehold:*clock:a"])
    }

    /// The remaining time of the record of `a`, in ms.
    fn record_left(&self) -> i64 {
        self.command(&["PTTL", &self.record()]).parse().unwrap()
    }

    fn set_record_left(&self, millis: i64) {
        assert_eq!(self.command(&["PEXPIRE", &self.record(), &millis.to_string()]), "1");
    }
}

#[test]
fn a_replaced_hold_is_relied_on_until_its_end() {
    let rig = Rig::reclaiming();
    let engine = rig.engine();
    for mode in MODES {
        // As after a takeover.
        rig.command(&["SET", "lock:a", PAST]);
        rig.grant(mode, 60_000);
        rig.command(&["GETSET", "lock:a", PAST]);
        let next = rig.claim("a");
        for how in [How::Create, How::Ask, How::Ask] {
            let answer = rig.run(engine.claim(&next, how));
            assert!(matches!(answer, Ok(Answer::Waiting(_))), "{mode:?}: {answer:?}");
            assert_eq!(rig.command(&["GET", "lock:a"]), PAST);
            assert!(rig.show("a").note.is_none(), "the next claim does not take the name over");
        }
        rig.command(&["FLUSHALL"]);
    }
}

/// The end of shared holds is stored; the end of an exclusive hold follows from the time of its record.
#[test]
fn a_replaced_hold_is_taken_over_after_its_end() {
    let rig = Rig::reclaiming();
    for mode in MODES {
        rig.grant(mode, 2000);
        let end = rig.server_millis(2000);
        if mode == Mode::Exclusive {
            rig.set_record_left(ENDED_LIFE - RECORD_SLACK + 2000);
        }
        rig.command(&["GETSET", "lock:a", PAST]);
        let guard = rig.locks().mutex("a").blocking().acquire_within(PATIENCE).unwrap();
        // The client counts the lease from a moment before its request, and `end` is counted from a moment after the
        // answer, so `end` is a little later than the end of the lease.
        assert!(rig.server_millis(0) > end - 1000, "{mode:?}");
        assert_eq!(guard.previous(), Previous::Lapsed);
        guard.release_blocking().unwrap();
    }
}

/// A holder that was told, and ended, does not delay the takeover.
#[test]
fn a_release_of_the_replaced_hold_lets_the_next_claim_take_over() {
    let rig = Rig::reclaiming();
    let request = || rig.locks().mutex("a").ttl(Duration::from_secs(60)).blocking();
    let guard = request().try_acquire().unwrap();
    rig.command(&["GETSET", "lock:a", PAST]);
    assert!(rig.run(guard.confirm()).unwrap_err().is_lost());
    assert!(request().try_acquire().unwrap_err().is_taken());
    drop(guard);
    rig.until("the release arrives", || request().try_acquire().is_ok());
}

/// The bound for an exclusive hold: its record ends at most `RECORD_SLACK` earlier than `ENDED_LIFE` after the hold.
#[test]
fn the_record_outlives_each_renewal_and_a_removed_expiry() {
    let rig = Rig::reclaiming();
    let engine = rig.engine();
    let (claim, hold) = rig.grant(Mode::Exclusive, 60_000);
    let least = ENDED_LIFE - RECORD_SLACK + 50_000;
    rig.set_record_left(least - 20_000);
    assert!(matches!(rig.run(engine.renew(&[hold]))[..], [Renewed::Extended { .. }]));
    assert!(rig.record_left() > least, "after a renewal");
    rig.set_record_left(least - 20_000);
    assert!(matches!(rig.run(engine.claim(&claim, How::Create)), Ok(Answer::Held(_))));
    assert!(rig.record_left() > least, "after a repeated request");
    // The end of a wait makes a script write the record anew.
    rig.command(&["PERSIST", "lock:a"]);
    let waiter = Claim { ttl: Duration::from_millis(100), ..rig.claim("a") };
    assert!(matches!(rig.run(engine.claim(&waiter, How::Create)), Ok(Answer::Waiting(_))));
    rig.run(engine.release(&[crate::cluster_rig::release_of(&waiter, None)]));
    assert!(rig.record_left() > least, "after the expiry was removed");
}

/// On a cluster, a renewal in a migrating slot extends the lock key and leaves the record as it is.
#[test]
fn a_hold_that_was_renewed_in_a_migrating_slot_is_relied_on() {
    let mut rig = ClusterRig::with(2, 0, &[]);
    rig.config = rig.config.clone().stale_deadline(StaleDeadline::Reclaim).unwrap();
    let (slot, owner, to) = rig.slot_and_nodes("a");
    let command = |command: &[&str]| rig.cluster().command(owner, command).concat();
    let engine = rig.engine();
    let claim = rig.claim("a");
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        // As if the slot had migrated for some minutes.
        let record = command(&["KEYS", "leasehold:*clock:a"]);
        assert_eq!(command(&["PEXPIRE", &record, &(ENDED_LIFE - 300_000).to_string()]), "1");
        rig.cluster().open_slot(slot, to).unwrap();
        assert!(matches!(engine.renew(&[hold_of(&claim, &grant)]).await[..], [Renewed::Extended { .. }]));
        command(&["GETSET", "lock:a", PAST]);
        while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
        rig.cluster().close_slot(slot).unwrap();
        let answer = engine.claim(&rig.claim("a"), How::Create).await;
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    });
}

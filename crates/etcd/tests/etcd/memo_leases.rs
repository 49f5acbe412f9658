//! The leases of memos: what becomes of them when their memos are replaced, and when they end early.

use std::time::Duration;

use leasehold_core::{
    Answer, Engine, Fault, HoldAfter, How, MAX_MEMO_KEEP, MemoKind, MemoWrite, NewMemo, Written,
};
use leasehold_etcd::EtcdEngine;
use leasehold_testkit::claims;

use crate::{
    late_requests::hold_back,
    memos::{Hold, hold, read, write_of},
    rig::{Rig, acquire},
};

/// A memo of this hold that is kept for so long.
fn kept(held: &Hold, number: u64, keep: Duration, after: HoldAfter) -> MemoWrite {
    let memo = NewMemo::new(MemoKind::ONCE, "x", keep).unwrap();
    MemoWrite { memo, ..write_of(held, (number, b""), after) }
}

async fn write(engine: &EtcdEngine, write: &MemoWrite) -> Result<Written, leasehold_core::EngineError> {
    engine.memos().unwrap().write(write).await
}

impl Rig {
    /// How many leases the server has that last for more than a week.
    fn long_leases(&self) -> usize {
        let listed = self.server.command(&["lease", "list"]);
        let is_long = |id: &&String| {
            let shown = self.server.command(&["lease", "timetolive", id]).concat();
            let granted = shown.split("TTL(").nth(1).and_then(|rest| rest.split('s').next());
            granted.is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 7 * 24 * 3600)
        };
        listed.iter().skip(1).filter(is_long).count()
    }

    /// The lease of a key, as etcdctl names it.
    fn lease_of(&self, key: &str) -> String {
        let listed = self.server.command(&["get", key, "-w", "json"]).concat();
        let lease = listed.split("\"lease\":").nth(1).unwrap();
        format!("{:x}", lease.split([',', '}']).next().unwrap().parse::<i64>().unwrap())
    }
}

/// Each leader is another process. One resigns, one is dropped, one has its hold deleted; all proclaim.
#[test]
fn of_an_election_at_most_one_long_lease_stays() {
    let rig = Rig::new();
    for round in ["resigned", "dropped", "deleted", "resigned"] {
        let locks = rig.locks();
        let leading = rig.run(locks.election("a").value("one").campaign()).unwrap();
        rig.until("the lease of the former leader is gone", || rig.long_leases() == 1);
        rig.run(leading.proclaim("two")).unwrap();
        assert_eq!(rig.long_leases(), 1, "{round}");
        match round {
            "resigned" => {
                rig.run(leading.resign()).unwrap();
                assert_eq!(rig.long_leases(), 0);
            }
            "dropped" => drop(leading),
            _ => {
                rig.server.command(&["del", "/locks/a/", "--prefix"]);
                drop(leading);
            }
        }
    }
}

/// The memos of other names stay, whether the leases are shared or not.
#[test]
fn a_replaced_memo_takes_no_other_memo_with_it() {
    let rig = Rig::new();
    for keep in [Duration::from_secs(3600), MAX_MEMO_KEEP] {
        let engine = rig.engine();
        rig.run(async {
            let [first, other] = [hold(&engine, rig.claim("a")).await, hold(&engine, rig.claim("b")).await];
            for held in [&first, &other] {
                let stored = write(&engine, &kept(held, 1, keep, HoldAfter::Release)).await;
                assert_eq!(stored.unwrap(), Written::Done);
            }
            let next = hold(&engine, rig.claim("a")).await;
            for (number, after) in [(1, HoldAfter::Keep), (2, HoldAfter::Keep), (3, HoldAfter::Release)] {
                assert_eq!(write(&engine, &kept(&next, number, keep, after)).await.unwrap(), Written::Done);
                assert_eq!(read(&engine).await.unwrap().unwrap().version.number, number);
            }
            let others = engine.memos().unwrap().read(&other.0.name).await.unwrap();
            assert_eq!(others.unwrap().version.id, other.0.id);
        });
        if keep == MAX_MEMO_KEEP {
            rig.until("only the stored memos have leases", || rig.long_leases() == 2);
        }
        rig.server.command(&["del", "leasehold/", "--prefix"]);
    }
}

#[test]
fn a_memo_that_was_not_written_leaves_no_long_lease() {
    let rig = Rig::new();
    let engine = rig.engine();
    for after in [HoldAfter::Keep, HoldAfter::Release] {
        rig.run(async {
            let held = hold(&engine, rig.claim("a")).await;
            rig.server.command(&["del", "/locks/a/", "--prefix"]);
            let overtaken = write(&engine, &kept(&held, 1, MAX_MEMO_KEEP, after)).await;
            assert_eq!(overtaken.unwrap(), Written::Overtaken);
            assert_eq!(rig.long_leases(), 0, "{after:?}");
            engine.release(&claims::release_of(&held.0)).await;
        });
    }
}

/// The lease was asked for when the write was dropped.
#[test]
fn a_dropped_write_leaves_no_long_lease_after_its_hold() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let held = rig.run(async {
        let held = hold(&engine, rig.claim("a")).await;
        let dropped = kept(&held, 1, MAX_MEMO_KEEP, HoldAfter::Keep);
        let mut sent = engine.memos().unwrap().write(&dropped);
        hold_back(&proxy, &mut sent).await;
        drop(sent);
        proxy.release_held();
        held
    });
    rig.until("the server has made the lease", || rig.long_leases() == 1);
    rig.run(engine.release(&claims::release_of(&held.0)));
    rig.until("the lease is revoked", || rig.long_leases() == 0);
}

/// The leases of memos that the client remembers are gone, and the session of its hold lives. A request of the claim
/// may still arrive, so the release raises the epoch, as without the leases (R9).
#[test]
fn the_epoch_is_raised_although_two_leases_of_memos_are_gone() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let seconds = Duration::from_secs;
    let refused = rig.run(async {
        // Two leases, on each of which the memo of "a" can be.
        for (name, keep) in [("b", 3600), ("c", 3790)] {
            let held = hold(&engine, rig.claim(name)).await;
            let stored = write(&engine, &kept(&held, 1, seconds(keep), HoldAfter::Keep)).await;
            assert_eq!(stored.unwrap(), Written::Done);
        }
        let memo_leases = ["b", "c"].map(|name| rig.lease_of(&format!("leasehold//locks/memo/{name}")));
        assert_ne!(memo_leases[0], memo_leases[1]);
        let claim = rig.claim("a");
        let mut sent = engine.claim(&claim, How::Create);
        hold_back(&proxy, &mut sent).await;
        proxy.cut_clients();
        assert_eq!(sent.await.unwrap_err().fault, Fault::Unknown);
        proxy.release_held();
        let Ok(Answer::Held(grant)) = engine.claim(&claim, How::Create).await else { panic!("it is free") };
        for lease in &memo_leases {
            rig.server.command(&["lease", "revoke", lease]);
        }
        let ending = kept(&(claim, grant), 1, seconds(3650), HoldAfter::Release);
        let mut refused = 0;
        while let Err(error) = write(&engine, &ending).await {
            assert_eq!(error.fault, Fault::Retry, "{error:?}");
            refused += 1;
            assert!(refused < 3, "{error:?}");
        }
        refused
    });
    let epochs = rig.server.command(&["get", "leasehold//locks/lease/", "--prefix", "-w", "json"]).concat();
    let memo = rig.server.command(&["get", "leasehold//locks/memo/a", "-w", "json"]).concat();
    let revision = |shown: &str| {
        let revision = shown.split("\"mod_revision\":").nth(1).map(|rest| rest.split(',').next().unwrap());
        revision.map(str::to_owned)
    };
    assert!(revision(&memo).is_some());
    assert_eq!(revision(&epochs), revision(&memo), "the release has raised it");
    assert_eq!(refused, 1, "both leases were tried");
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}

//! A slot of a Redis Cluster migrates: renewals and releases then use as few keys as possible, and the server sends
//! notifications that no request asked for.

use std::time::Duration;

use leasehold_core::{
    AllAnswer, Answer, Claim, Engine, Fault, How, Loss, Mode, Notification, Previous, Released, Renewed,
    TimeLeft, Token,
};
use leasehold_redis::Layout;

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of, release_of},
    rig::PATIENCE,
};

/// Renewals and releases compare id and token. They neither change the lock of another claim nor create a lock.
#[test]
fn a_release_in_a_migrating_slot_affects_no_other_claim() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let (engine, other) = (rig.engine(), rig.engine());
    let claim = |name: &str, mode| Claim { mode, ..rig.claim(name) };
    rig.run(async {
        let mut cases = Vec::new();
        for (name, mode) in [("{x}1", Mode::Exclusive), ("{x}2", Mode::Shared)] {
            let claim = claim(name, mode);
            cases.push((claim.clone(), granted(&engine, &claim).await));
        }
        rig.cluster().open_slot(slot, to).unwrap();
        for moved in [false, true] {
            if moved {
                while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
            }
            for (claim, grant) in &cases {
                // Another claim with the token of the holder, and a claim that never held.
                let other_claim = self::new_claim_like(&rig, claim);
                assert!(matches!(
                    other.renew(&[hold_of(&other_claim, grant)]).await[..],
                    [Renewed::Lost(Loss::Gone)]
                ));
                assert!(matches!(
                    other.release(&[release_of(&other_claim, Some(grant))]).await[..],
                    [Released::Unknown(_)]
                ));
                assert!(matches!(
                    other.release(&[release_of(&self::new_claim_like(&rig, claim), None)]).await[..],
                    [Released::Unknown(_)]
                ));
                if claim.mode == Mode::Exclusive {
                    let mut older = hold_of(claim, grant);
                    older.token = Token { number: older.token.number - 1, ..older.token };
                    assert!(matches!(engine.renew(&[older]).await[..], [Renewed::Lost(Loss::Gone)]));
                    let mut ended = release_of(claim, Some(grant));
                    ended.token = ended.token.map(|token| Token { number: token.number - 1, ..token });
                    assert!(matches!(other.release(&[ended]).await[..], [Released::Unknown(_)]));
                }
                assert!(matches!(
                    engine.renew(&[hold_of(claim, grant)]).await[..],
                    [Renewed::Extended { .. }]
                ));
            }
        }
        rig.cluster().close_slot(slot).unwrap();
        for (claim, grant) in &cases {
            assert!(matches!(engine.release(&[release_of(claim, Some(grant))]).await[..], [Released::Freed]));
        }
    });
    rig.until("nothing is left", || rig.leftovers().is_empty());
}

/// While a slot migrates, a set of its names is neither granted nor called taken.
#[test]
fn no_set_is_judged_by_a_part_of_its_keys() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let names = ["{x}1", "{x}2"];
    let engine = rig.engine();
    let holders = names.map(|name| rig.claim(name));
    let set = names.map(|name| Claim { may_queue: false, ..rig.claim(name) });
    rig.run(async {
        let mut grants = Vec::new();
        for holder in &holders {
            grants.push(granted(&engine, holder).await);
        }
        let answer = engine.claim_all(&set).await;
        assert!(matches!(answer, Ok(AllAnswer::Taken { index: 0, .. })), "{answer:?}");
        rig.cluster().open_slot(slot, to).unwrap();
        for moved in [false, true] {
            if moved {
                while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
            }
            // The lock keys are on one node, and other keys of these names exist on no node.
            let error = engine.claim_all(&set).await.unwrap_err();
            assert!(error.fault == Fault::Retry && error.message.contains("is moving"), "{error:?}");
        }
        rig.cluster().close_slot(slot).unwrap();
        for (holder, grant) in holders.iter().zip(&grants) {
            assert!(matches!(
                engine.release(&[release_of(holder, Some(grant))]).await[..],
                [Released::Freed]
            ));
        }
        let Ok(AllAnswer::Held(grants)) = engine.claim_all(&set).await else { panic!("both are free") };
        for (claim, grant) in set.iter().zip(&grants) {
            assert!(matches!(engine.release(&[release_of(claim, Some(grant))]).await[..], [Released::Freed]));
        }
    });
    rig.until("nothing is left", || rig.leftovers().is_empty());
}

/// A renewal that reads only the lock key tells the holder of another program's value, and of a changed time.
#[test]
fn a_key_that_was_changed_in_a_migrating_slot_is_noticed() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, owner, to) = rig.slot_and_nodes("{x}");
    let engine = rig.engine();
    let claim = rig.claim("{x}");
    rig.run(async {
        let grant = granted(&engine, &claim).await;
        rig.cluster().open_slot(slot, to).unwrap();
        let command = |command: &[&str]| drop(rig.cluster().command(owner, command));
        command(&["PERSIST", "lock:{x}"]);
        let renewed = engine.renew(&[hold_of(&claim, &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { left: TimeLeft::Endless, .. }]), "{renewed:?}");
        command(&["SET", "lock:{x}", "theirs"]);
        let renewed = engine.renew(&[hold_of(&claim, &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Lost(Loss::Overwritten)]), "{renewed:?}");
        command(&["SET", "lock:{x}", &format!("{}.7", rig.claim("{x}").id)]);
        let renewed = engine.renew(&[hold_of(&claim, &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Lost(Loss::Gone)]), "{renewed:?}");
    });
}

/// A renewal of a shorter shared hold sets a removed expiry to the end of the longest hold, also while the slot
/// migrates.
#[test]
fn a_removed_expiry_of_shared_holds_in_a_migrating_slot_is_set_to_the_longest_of_them() {
    for layout in [Layout::Plain, Layout::Redisson] {
        let mut rig = ClusterRig::with(2, 0, &[]);
        (rig.config, rig.redisson) = (rig.config.clone().layout(layout).unwrap(), layout == Layout::Redisson);
        let (slot, owner, to) = rig.slot_and_nodes("{x}");
        let engine = rig.engine();
        rig.run(async {
            let long = Claim { mode: Mode::Shared, ttl: Duration::from_secs(60), ..rig.claim("{x}") };
            let short = Claim { mode: Mode::Shared, ttl: Duration::from_secs(20), ..rig.claim("{x}") };
            granted(&engine, &long).await;
            let grant = granted(&engine, &short).await;
            rig.cluster().open_slot(slot, to).unwrap();
            rig.cluster().command(owner, &["PERSIST", "lock:{x}"]);
            let renewed = engine.renew(&[hold_of(&short, &grant)]).await;
            assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{layout:?}: {renewed:?}");
            let left: i64 = rig.cluster().command(owner, &["PTTL", "lock:{x}"]).concat().parse().unwrap();
            assert!((30_000..=60_000).contains(&left), "{layout:?}: {left}");
        });
    }
}

fn new_claim_like(rig: &ClusterRig, claim: &Claim) -> Claim {
    Claim { mode: claim.mode, ..rig.claim(claim.name.as_str()) }
}

/// A release that uses only the lock key leaves the record. To the next holder the hold therefore looks expired; a
/// released permit is free.
#[test]
fn permits_released_in_a_migrating_slot_are_free_afterwards() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let (engine, other) = (rig.engine(), rig.engine());
    let permits = Mode::Permits { count: 1, limit: 2 };
    rig.run(async {
        let alone = rig.claim("{x}m");
        let grant = granted(&engine, &alone).await;
        let mut two = Vec::new();
        for _ in 0..2 {
            let claim = Claim { mode: permits, ..rig.claim("{x}s") };
            two.push((claim.clone(), granted(&engine, &claim).await));
        }
        rig.cluster().open_slot(slot, to).unwrap();
        let ends = [release_of(&alone, Some(&grant)), release_of(&two[0].0, Some(&two[0].1))];
        let released = engine.release(&ends).await;
        assert!(released.iter().all(|one| matches!(one, Released::Freed)), "{released:?}");
        while rig.cluster().move_keys(slot, 100).unwrap() > 0 {}
        rig.cluster().close_slot(slot).unwrap();
        assert_eq!(granted(&other, &rig.claim("{x}m")).await.previous, Previous::Lapsed);
        granted(&other, &Claim { mode: permits, ..rig.claim("{x}s") }).await;
        let full =
            other.claim(&Claim { mode: permits, may_queue: false, ..rig.claim("{x}s") }, How::Create).await;
        assert!(matches!(full, Ok(Answer::Taken(_))), "{full:?}");
    });
}

/// When a slot moves away, its old node ends the subscriptions of that slot, and sends a notification of that between
/// replies to requests in flight. Waiters of other slots still get their notifications, and waiters of the moved slot
/// subscribe at its new node.
#[test]
fn an_unsubscribe_notification_is_not_taken_for_a_reply() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, _, to) = rig.slot_and_nodes("{x}");
    let names: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
    let from_names: Vec<&String> = names.iter().filter(|name| rig.slot_and_nodes(name).1 != to).collect();
    let (holder, engine) = (rig.engine(), rig.engine());
    rig.run(async {
        let (first, second) = (rig.claim("{x}"), rig.claim("{x}"));
        let grant = granted(&holder, &first).await;
        assert!(matches!(engine.claim(&second, How::Create).await, Ok(Answer::Waiting(_))));
        let mut pairs = Vec::new();
        for name in &from_names {
            let claim = rig.claim(name);
            let grant = granted(&holder, &claim).await;
            pairs.push((claim, grant, rig.claim(name)));
        }
        // Subscriptions of a hundred slots are in flight while one slot leaves.
        let waits =
            futures_util::future::join_all(pairs.iter().map(|(_, _, next)| engine.claim(next, How::Create)));
        let (answers, ()) = futures_util::future::join(waits, async {
            rig.cluster().migrate_slot(slot, to).unwrap();
        })
        .await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Waiting(_)))), "{answers:?}");
        pairs.push((first, grant, second));
        let ends: Vec<_> = pairs.iter().map(|(claim, grant, _)| release_of(claim, Some(grant))).collect();
        // The client may have missed a notification for this claim before it subscribed again, so the claim asks.
        let ask = engine.claim(&pairs[pairs.len() - 1].2, How::Ask).await;
        assert!(matches!(ask, Ok(Answer::Waiting(_))), "{ask:?}");
        assert!(holder.release(&ends).await.iter().all(|one| matches!(one, Released::Freed)));
        let mut missing: std::collections::HashSet<_> = pairs.iter().map(|(_, _, next)| next.id).collect();
        let all_granted = async {
            while !missing.is_empty() {
                for notification in engine.notifications().await {
                    if let Notification::Granted { id, .. } = notification {
                        missing.remove(&id);
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, all_granted).await.expect("all grants are pushed");
    });
}

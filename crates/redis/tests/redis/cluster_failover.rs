//! Nodes of a Redis Cluster that die, freeze, and are replaced.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Engine, Guard, Inspect, Name, Renewed};
use leasehold_redis::Config;
use leasehold_testkit::server::{RedisCluster, RedisFailover};

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of},
    rig::{PATIENCE, acquire, local},
};

/// Longer than a fail-over takes on a busy machine. A node regards another node as down after 5 s.
const LONG: Duration = Duration::from_secs(60);

/// Waits until the replicas of a node have all data of that node.
fn wait_for_replica(rig: &ClusterRig, node: usize) {
    let offset = |line: &str, key: &str| line.trim().strip_prefix(key).map(str::to_owned);
    rig.until("the replica has all data", || {
        let cluster = rig.cluster();
        let info = cluster.command(node, &["INFO", "replication"]);
        let master = info.iter().find_map(|line| offset(line, "master_repl_offset:"));
        let replica =
            info.iter().find_map(|line| line.trim().split_once("offset=").map(|(_, rest)| rest.to_owned()));
        match (master, replica) {
            (Some(master), Some(replica)) => replica.split(',').next() == Some(master.as_str()),
            _ => false,
        }
    });
}

#[test]
fn holds_and_waiters_survive_a_killed_cluster_master() {
    let rig = ClusterRig::new();
    let (slot, from, _) = rig.slot_and_nodes("{x}");
    let (locks, other) = (rig.locks(), rig.locks());
    let guards: Vec<Guard> = (0..20)
        .map(|number| {
            locks.mutex(format!("{{x}}{number}")).ttl(LONG).blocking().acquire_within(PATIENCE).unwrap()
        })
        .collect();
    let waiting: Vec<_> = (0..20)
        .map(|number| rig.runtime().spawn(other.mutex(format!("{{x}}{number}")).acquire_within(PATIENCE * 2)))
        .collect();
    rig.until("they wait", || (0..20).all(|number| rig.show(&format!("{{x}}{number}")).waiters.len() == 1));
    wait_for_replica(&rig, from);
    rig.cluster().kill(from);
    let now = rig.cluster().owner(slot);
    assert_ne!(now, from);
    let before: Vec<_> = guards.iter().map(|guard| guard.token().number).collect();
    for guard in guards {
        // For a moment after the fail-over the holds are in doubt, until the replica has confirmed them.
        rig.until("its hold is valid", || guard.check());
        rig.until("its hold is confirmed on the replica", || rig.run(guard.confirm()).is_ok());
        guard.release_blocking().unwrap();
    }
    for (waited, before) in waiting.into_iter().zip(before) {
        let guard = rig.run(waited).unwrap().unwrap();
        assert!(guard.token().number > before, "tokens grow through a fail-over");
    }
}

/// The promoted replica never received the hold. The hold is reported as lost, and is never valid at the same time as
/// the next hold of the name.
#[test]
fn a_hold_lost_with_its_master_is_reported_lost() {
    let mut rig = ClusterRig::new();
    let (slot, from, other) = rig.slot_and_nodes("{x}");
    // The client connects to the replica for the first time after its promotion.
    let seed = rig.cluster().ports()[other];
    rig.config = Config::cluster(vec![local(seed)]);
    let replica = from + 3;
    let locks = rig.locks();
    // The replica does not receive this hold, whose renewal is due long after the end of the test.
    rig.cluster().cut(replica);
    let guard = locks.mutex("{x}").ttl(LONG * 60).blocking().acquire_within(PATIENCE).unwrap();
    rig.cluster().kill(from);
    rig.cluster().heal(replica);
    rig.until("the replica is the owner", || rig.cluster().owner(slot) == replica);
    rig.until("the loss is reported", || !guard.check());
    let next = acquire(&rig.locks(), "{x}");
    assert!(next.token().number > guard.token().number);
}

#[test]
fn no_kind_of_fail_over_ends_a_hold() {
    let rig = ClusterRig::new();
    let (slot, first, _) = rig.slot_and_nodes("{x}");
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("{x}").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    let waiting = rig.runtime().spawn(other.mutex("{x}").acquire_within(PATIENCE * 3));
    rig.until("it waits", || rig.show("{x}").waiters.len() == 1);
    let mut owner = first;
    for kind in [RedisFailover::Plain, RedisFailover::Force, RedisFailover::Takeover] {
        rig.cluster().wait_until_stable();
        wait_for_replica(&rig, owner);
        let replica = if owner == first { first + 3 } else { first };
        rig.cluster().failover(replica, kind).unwrap();
        rig.until("all nodes know the new owner", || rig.cluster().owner(slot) == replica);
        owner = replica;
        rig.until("the hold is confirmed there", || rig.run(guard.confirm()).is_ok());
        // After its node was replaced, the hold is in doubt until it is confirmed.
        rig.until("it is valid again", || guard.check());
        assert!(!waiting.is_finished(), "{kind:?}");
    }
    let before = guard.token().number;
    guard.release_blocking().unwrap();
    assert!(rig.run(waiting).unwrap().unwrap().token().number > before);
}

/// A resumed master answers the requests that waited in its socket.
#[test]
fn a_master_frozen_past_its_fail_over_validates_no_hold() {
    let rig = ClusterRig::of(RedisCluster::start());
    let (slot, from, _) = rig.slot_and_nodes("{x}");
    let (locks, other) = (rig.locks(), rig.locks());
    for _ in 0..2 {
        let owner = rig.cluster().owner(slot);
        let guard = locks.mutex("{x}").ttl(Duration::from_secs(6)).blocking().acquire_within(LONG).unwrap();
        let guard = Arc::new(Mutex::new(Some(guard)));
        wait_for_replica(&rig, owner);
        rig.cluster().pause(owner);
        rig.until("its replica has taken over", || {
            let cluster = rig.cluster();
            (0..6)
                .filter(|&node| node != owner)
                .any(|node| cluster.is_master(node) && cluster.owner_by(node, slot) == Some(node))
        });
        let both = Arc::new(AtomicBool::new(false));
        let (watched, overlap) = (Arc::clone(&guard), Arc::clone(&both));
        let next = other.mutex("{x}").acquire_within(LONG);
        let next = rig.runtime().spawn(async move {
            let next = next.await.unwrap();
            for _ in 0..100 {
                if next.check() && watched.lock().unwrap().as_ref().is_some_and(Guard::check) {
                    overlap.store(true, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            next
        });
        std::thread::sleep(Duration::from_millis(1500));
        rig.cluster().resume(owner);
        // The new master has the hold or lacks it: the result of the release does not matter.
        let ended = guard.lock().unwrap().take().unwrap().release_blocking();
        drop(ended);
        let next = rig.run(next).unwrap();
        assert!(!both.load(Ordering::Relaxed), "two holds were valid at once");
        next.release_blocking().unwrap();
        rig.cluster().wait_until_stable();
    }
    let _ = from;
}

/// The master of one slot is dead; the masters of the other slots work.
#[test]
fn a_dead_node_does_not_affect_names_of_other_nodes() {
    let rig = ClusterRig::with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let engine = rig.engine();
    let names: Vec<_> = (0..60).map(|number| format!("n{number}")).collect();
    let owners: Vec<_> = names.iter().map(|name| rig.slot_and_nodes(name).1).collect();
    rig.run(async {
        let mut holds = Vec::new();
        for name in &names {
            let claim = rig.claim(name);
            let grant = granted(&engine, &claim).await;
            holds.push(hold_of(&claim, &grant));
        }
        rig.cluster().kill(0);
        let renewed = engine.renew(&holds).await;
        for (renewed, owner) in renewed.iter().zip(&owners) {
            match renewed {
                Renewed::Extended { .. } => assert_ne!(*owner, 0),
                Renewed::Unknown(_) => assert_eq!(*owner, 0),
                lost => panic!("{lost:?}"),
            }
        }
        let name = |is_available: bool| {
            let name = names.iter().zip(&owners).find(|(_, owner)| (**owner != 0) == is_available).unwrap().0;
            Name::new(name).unwrap()
        };
        Inspect::show(&*engine, &name(true)).await.unwrap();
        let error = Inspect::show(&*engine, &name(false)).await.unwrap_err();
        assert_eq!(error.fault, leasehold_core::Fault::Retry, "{error:?}");
        rig.cluster().restart(0);
        rig.cluster().wait_until_stable();
        assert!(
            Inspect::show(&*engine, &name(false)).await.unwrap().holders.is_empty(),
            "the node saved no data"
        );
    });
}

/// If too few replicas of the name's master have a grant, the engine releases it and reports an error.
#[test]
fn a_grant_waits_for_replicas_of_its_own_node() {
    let mut rig = ClusterRig::new();
    rig.config = rig.config.clone().wait(1);
    let (_, owner, _) = rig.slot_and_nodes("{x}");
    let locks = rig.locks();
    acquire(&locks, "{x}").release_blocking().unwrap();
    rig.cluster().cut(owner + 3);
    rig.until("its master has no replica", || {
        let info = rig.cluster().command(owner, &["INFO", "replication"]);
        info.iter().any(|line| line.trim() == "connected_slaves:0")
    });
    let error = locks.mutex("{x}").blocking().try_acquire().unwrap_err();
    assert!(error.to_string().contains("replicas"), "{error}");
    rig.until("the grant was released", || rig.cluster().command(owner, &["EXISTS", "lock:{x}"]) == ["0"]);
}

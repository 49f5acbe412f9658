//! Servers that stop, or are replaced, while a client has holds there.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Engine, ErrorKind, Guard, Hold, How, Locks, Loss, Renewed};
use leasehold_redis::{Config, RedisEngine};
use leasehold_testkit::server::{
    RedisCluster, RedisClusterOptions, RedisFailover, RedisSentinelOptions, RedisServer,
};

use crate::{
    cluster_rig::{ClusterRig, granted, hold_of},
    rig::{PATIENCE, claim_of, local},
    sentinel_rig::{SentinelRig, late_failover},
};

/// The ttl of a hold whose renewal is not due during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A stopped server answers the requests in its socket when it runs again. Another server may have replaced it by then,
/// so a late answer must not count.
async fn ignores_a_late_answer(
    engine: &RedisEngine,
    stopped_for: Duration,
    stop: impl FnOnce(),
    run: impl FnOnce(),
) {
    let claim = claim_of("{x}");
    let hold = hold_of(&claim, &granted(engine, &claim).await);
    let hold: &[Hold] = std::slice::from_ref(&hold);
    assert!(matches!(engine.renew(hold).await[..], [Renewed::Extended { .. }]));
    stop();
    let late = engine.renew(hold);
    let (late, ()) = futures_util::future::join(late, async {
        tokio::time::sleep(stopped_for).await;
        run();
    })
    .await;
    assert!(matches!(late[..], [Renewed::Unknown(_)]), "a late answer does not count: {late:?}");
    let again = async {
        while !matches!(engine.renew(hold).await[..], [Renewed::Extended { .. }]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("the hold is renewed: no server replaced this one");
}

/// An answer of a master counts only within half of `down-after-milliseconds`, here 2 s. A client that gets no answer
/// for 3 s connects again in any case.
#[test]
fn a_late_answer_of_a_stopped_master_is_not_valid() {
    let rig =
        SentinelRig::new(RedisSentinelOptions { down_after: Duration::from_secs(4), ..late_failover() });
    let engine = rig.engine();
    let redis = std::sync::Mutex::new(rig.redis);
    let stopped_for = Duration::from_millis(2400);
    rig.runtime.block_on(ignores_a_late_answer(
        &engine,
        stopped_for,
        || redis.lock().unwrap().pause(0),
        || redis.lock().unwrap().resume(0),
    ));
}

/// An answer of a cluster node counts only within half of `cluster-node-timeout`.
#[test]
fn a_late_answer_of_a_node_that_was_not_replaced_is_not_valid() {
    let options = RedisClusterOptions {
        masters: 2,
        replicas: 0,
        node_timeout: Duration::from_secs(3),
        ..RedisClusterOptions::default()
    };
    let rig = ClusterRig::of(RedisCluster::start_with(options));
    let (_, owner, _) = rig.slot_and_nodes("{x}");
    let (engine, stopped_for) = (rig.engine(), Duration::from_millis(2000));
    rig.run(ignores_a_late_answer(
        &engine,
        stopped_for,
        || rig.cluster().pause(owner),
        || rig.cluster().resume(owner),
    ));
}

/// A replica takes over a node and lacks a hold, and no connection is closed. A client finds the loss when a request is
/// redirected to the replica, or earlier if the busy machine delays answers for so long that the client asks anew.
fn reports_a_loss_once_redirected_to_the_replica(rig: &ClusterRig, owner: usize, replica: usize) {
    let locks = rig.locks();
    let guard = locks.mutex("{x}").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    rig.cluster().failover(replica, RedisFailover::Takeover).unwrap();
    rig.until("the old owner knows", || !rig.cluster().is_master(owner));
    // While the old owner copies the data of its new master, it answers with an error, for which a client asks for the
    // owners of all slots at once.
    rig.cluster().wait_until_stable();
    rig.cluster().command(replica, &["DEL", "lock:{x}"]);
    rig.until("another name of the slot is granted there", || {
        let other = locks.mutex("{x}other").blocking().acquire_within(PATIENCE);
        other.and_then(Guard::release_blocking).is_ok()
    });
    rig.until("the loss is reported", || !guard.check());
    // If the first of two renewals got no valid answer, the second no longer finds a record of the hold.
    let kind = guard.release_blocking().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Lost(Loss::EndedEarly | Loss::Gone)), "{kind:?}");
}

#[test]
fn holds_are_in_doubt_when_a_replica_takes_over_a_node() {
    let rig = ClusterRig::new();
    let (_, owner, _) = rig.slot_and_nodes("{x}");
    reports_a_loss_once_redirected_to_the_replica(&rig, owner, owner + 3);
}

/// The node has only one slot. So the redirection already takes all slots from the node in the client's map, before the
/// client asks for the owners.
#[test]
fn holds_are_in_doubt_when_a_replica_takes_over_an_only_slot() {
    let rig = ClusterRig::with(2, 0, &[]);
    let (slot, ..) = rig.slot_and_nodes("{x}");
    let owner = rig.cluster().add();
    rig.cluster().migrate_slot(slot, owner).unwrap();
    let replica = rig.cluster().add_replica(owner);
    rig.cluster().wait_until_stable();
    reports_a_loss_once_redirected_to_the_replica(&rig, owner, replica);
}

/// The client asks a restarted replica for the owners of the slots, because the master is stopped. Our holds are on the
/// master, so the restart of the replica puts none of them in doubt.
#[test]
fn a_restarted_replica_puts_no_hold_in_doubt() {
    let mut rig = ClusterRig::with(1, 1, &[]);
    let replica = rig.cluster().ports()[1];
    rig.config = Config::cluster(vec![local(replica)]);
    let engine = rig.engine();
    let locks = Locks::builder(Arc::clone(&engine) as Arc<dyn Engine>).build();
    let guard = locks.mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    rig.cluster().kill(1);
    rig.cluster().restart(1);
    rig.cluster().wait_until_stable();
    let is_asked = || {
        let calls = rig.cluster().command(1, &["INFO", "commandstats"]);
        calls.iter().any(|line| line.starts_with("cmdstat_cluster|slots:"))
    };
    assert!(!is_asked(), "the client has not asked it since its restart");
    rig.cluster().pause(0);
    rig.run(async {
        // The stopped master answers nothing, so the client asks another node for the owners of the slots.
        let claim = claim_of("b");
        let given_up = engine.claim(&claim, How::Create);
        assert!(tokio::time::timeout(Duration::from_millis(1500), given_up).await.is_err());
    });
    rig.until("the replica is asked", is_asked);
    assert!(guard.check(), "the master has not lost it");
    rig.cluster().resume(0);
    guard.confirm_blocking().unwrap();
}

/// The restarted master has none of its holds.
#[test]
fn a_restarted_master_puts_its_holds_in_doubt() {
    let rig = ClusterRig::with(1, 0, &[]);
    let guard = rig.locks().mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    rig.cluster().kill(0);
    rig.cluster().restart(0);
    rig.until("the loss is reported", || !guard.check());
    // The node refuses requests for two seconds, so a release may be sent twice.
    let kind = guard.release_blocking().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Lost(Loss::Gone) | ErrorKind::Unknown), "{kind:?}");
}

/// The Sentinels notice only half a minute later that the master refuses writes. Until then the client knows no server
/// that is the master.
#[test]
fn holds_are_in_doubt_when_the_master_refuses_writes() {
    let mut rig = SentinelRig::new(late_failover());
    let locks = rig.locks();
    let guard = locks.mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    rig.replicate(0);
    rig.redis.failover_without_sentinels(1);
    let error = locks.mutex("b").blocking().acquire_within(Duration::from_secs(1)).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(!guard.check(), "after the refusal the hold is in doubt");
    assert_eq!(rig.redis.master_named_by(0), Some(0), "the Sentinels do not know yet");
}

/// Sentinels announce the events of all groups that they watch.
#[test]
fn a_fail_over_of_another_group_puts_no_hold_in_doubt() {
    let rig =
        SentinelRig::new(RedisSentinelOptions { down_after: Duration::from_secs(120), ..late_failover() });
    let first = RedisServer::start(&[]);
    let second = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {}", first.port())]);
    let (other, port) = ("mymaster2", first.port().to_string());
    for sentinel in 0..3 {
        rig.redis.sentinel_command(sentinel, &["SENTINEL", "MONITOR", other, "127.0.0.1", &port, "2"]);
    }
    let guard = rig.locks().mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
    let our_connections = || {
        let clients = rig.redis.command(0, &["CLIENT", "LIST"]);
        let our_connections =
            clients.into_iter().filter(|line| line.contains("resp=3") && line.contains("sub=1"));
        our_connections.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = our_connections();
    assert_eq!(before.len(), 1);
    let mut was_asked = false;
    rig.until("the other group has another master for all Sentinels", || {
        assert!(guard.check(), "this group had no fail-over");
        was_asked = was_asked || rig.redis.sentinel_answer(0, &["SENTINEL", "FAILOVER", other]).is_ok();
        let named =
            |sentinel| rig.redis.sentinel_command(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", other]);
        (0..3).all(|sentinel| named(sentinel).last() == Some(&second.port().to_string()))
    });
    assert!(guard.check());
    assert_eq!(our_connections(), before, "the connection is the same");
    guard.release_blocking().unwrap();
}

//! Three etcd servers, some of them stopped, killed or cut off.

use std::{
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use leasehold::{Level, Locks};
use leasehold_testkit::{server::EtcdCluster, stopwatch::Stopwatch};

use crate::{
    crowd::Crowd,
    etcd_rig::{SHORTEST, queue_keys, through_proxies},
    rig::{HELD, PATIENCE, SLACK, acquire, millis, rng, until, until_renewed},
};

/// A ttl that outlasts an election and the move of a client from a dead member to another.
const LONG: Duration = Duration::from_secs(10);
/// A ttl that outlasts all faults of a test on a busy machine, so that the hold does not depend on the time of
/// elections.
const LONGEST: Duration = Duration::from_secs(60);

fn connect(cluster: &EtcdCluster) -> Locks {
    Locks::connect(&cluster.url()).unwrap()
}

/// Waits until no key of a holder or a waiter remains.
fn expect_clean(cluster: &EtcdCluster) {
    until("no key is left", || {
        queue_keys(&cluster.command(cluster.leader(), &["get", "-w=json", "--prefix", "/locks/"])).is_empty()
    });
}

/// Injects a fault while there are holds: one during the whole test, and many short ones.
fn under_load(cluster: &mut EtcdCluster, inject: impl FnOnce(&mut EtcdCluster, &Crowd)) {
    let holder = connect(cluster);
    let guard = acquire(&holder, "held", LONGEST);
    let crowd = Crowd::of(&cluster.url(), LONG);
    crowd.wait_for_grants(10);
    inject(cluster, &crowd);
    crowd.wait_for_grants(10);
    crowd.expect_exclusion();
    assert!(guard.check(), "the remaining members renewed it");
    guard.release_blocking().unwrap();
    expect_clean(cluster);
}

#[test]
fn leader_is_killed() {
    let mut cluster = EtcdCluster::start();
    under_load(&mut cluster, |cluster, crowd| {
        sleep(rng().millis(0..300));
        let leader = cluster.leader();
        cluster.kill(leader);
        crowd.wait_for_grants(10);
        cluster.restart(leader);
    });
}

#[test]
fn follower_is_cut_off_and_then_the_leader() {
    let mut cluster = EtcdCluster::start();
    under_load(&mut cluster, |cluster, crowd| {
        sleep(rng().millis(0..300));
        let follower = (cluster.leader() + 1) % 3;
        for node in [follower, cluster.leader()] {
            cluster.cut(node);
            // Longer than the members take to notice.
            sleep(millis(2500));
            crowd.wait_for_grants(10);
            cluster.heal(node);
        }
    });
}

#[test]
fn member_of_a_holder_is_cut_off() {
    let (mut cluster, ttl) = (EtcdCluster::start(), LONG);
    let (proxies, locks) = through_proxies(&cluster);
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..1000));
    // The member still answers, and reports that it has no leader.
    cluster.cut(proxies.iter().position(|proxy| proxy.connections() > 0).unwrap());
    // Twice, because the first renewal may come from a leader that has not noticed yet.
    (0..2).for_each(|_| until_renewed(&guard));
    assert!(guard.check(), "renewed through another member");
    guard.release_blocking().unwrap();
}

#[test]
fn f42_leader_is_stopped_for_less_than_a_lease() {
    let mut cluster = EtcdCluster::start();
    under_load(&mut cluster, |cluster, crowd| {
        for _ in 0..2 {
            let leader = cluster.leader();
            cluster.pause(leader);
            sleep(rng().millis(1000..4000));
            crowd.wait_for_grants(5);
            cluster.resume(leader);
        }
    });
}

#[test]
fn f71_each_server_is_stopped_and_resumed_while_waiters_ask() {
    let mut cluster = EtcdCluster::start();
    under_load(&mut cluster, |cluster, crowd| {
        let mut rng = rng();
        for _ in 0..8 {
            let node = rng.below(3) as usize;
            cluster.pause(node);
            sleep(rng.millis(100..2500));
            cluster.resume(node);
            sleep(rng.millis(0..500));
        }
        crowd.wait_for_grants(10);
    });
}

#[test]
fn f42_leader_is_stopped_beyond_the_lease_and_resumed() {
    let (mut cluster, ttl) = (EtcdCluster::start(), HELD);
    let (holder, waiter) = (connect(&cluster), connect(&cluster));
    // In this version of etcd such a leader may end leases that the next leader has renewed (a known bug).
    let guarantee = pollster::block_on(holder.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::BestEffort, "{guarantee:?}");
    assert!(guarantee.to_string().contains("17465"), "{guarantee:?}");
    let guard = acquire(&holder, "a", ttl);
    let request = waiter.mutex("a").ttl(ttl).blocking();
    let waiting = spawn(move || request.acquire_within(PATIENCE));
    sleep(rng().millis(0..2000));
    let old = cluster.leader();
    cluster.pause(old);
    let end = Instant::now() + ttl + Duration::from_secs(2);
    while Instant::now() < end {
        assert!(guard.check(), "renewed by the next leader");
        assert!(!waiting.is_finished());
        sleep(millis(20));
    }
    cluster.resume(old);
    let (mut together, end) = (false, Instant::now() + Duration::from_secs(3));
    while Instant::now() < end {
        together |= waiting.is_finished() && guard.check();
        sleep(millis(5));
    }
    let was_ended = waiting.is_finished();
    println!("the old leader ended the lease: {was_ended}; two holds were valid at once: {together}");
    if !was_ended {
        assert!(guard.check());
        guard.release_blocking().unwrap();
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
        return;
    }
    let next = waiting.join().unwrap().unwrap();
    assert!(next.token().number > guard.token().number, "I4");
    until("the loss is reported to the old holder", || !guard.check());
    let fence = waiter.etcd_fence("a").unwrap();
    pollster::block_on(fence.seal(next.token())).unwrap();
    assert!(pollster::block_on(fence.seal(guard.token())).unwrap_err().is_fenced());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    assert!(next.check());
}

#[test]
fn minority_answers_in_time_and_leaks_nothing() {
    let mut cluster = EtcdCluster::start();
    let clients: Vec<_> = (0..6).map(|_| connect(&cluster)).collect();
    clients.iter().for_each(|locks| acquire(locks, "a", LONG).release_blocking().unwrap());
    let leader = cluster.leader();
    let lost = [leader, (leader + 1) % 3];
    lost.into_iter().for_each(|node| cluster.kill(node));
    let mut rng = rng();
    let limits = [0..100, 300..700, 1000..3000, 5000..8000].map(|range| rng.millis(range));
    let wait = |locks: &Locks, limit: Duration| {
        // Claims with different owners share no wait.
        let request = locks.mutex("a").ttl(LONG).owner(format!("{limit:?}").as_str()).blocking();
        spawn(move || {
            let watch = Stopwatch::start();
            let error = request.acquire_within(limit).unwrap_err();
            assert!(error.is_unreachable() || error.is_unknown() || error.is_timed_out(), "{error}");
            watch.assert_within(limit + millis(100) + SLACK, "I12");
        })
    };
    let waiting: Vec<_> = clients.iter().flat_map(|locks| limits.map(|limit| wait(locks, limit))).collect();
    waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
    lost.into_iter().for_each(|node| cluster.restart(node));
    let watch = Stopwatch::start();
    for locks in &clients {
        acquire(locks, "a", LONG).release_blocking().unwrap();
    }
    watch.assert_within(LONG, "no late request holds the name for a lease");
    expect_clean(&cluster);
}

#[test]
fn quorum_is_lost_and_restored() {
    let mut cluster = EtcdCluster::start();
    for (ttl, away) in [(LONG * 3, millis(1500)), (SHORTEST, SHORTEST * 2)] {
        let (holder, waiter) = (connect(&cluster), connect(&cluster));
        let guard = acquire(&holder, "a", ttl);
        let request = waiter.mutex("a").ttl(LONG).blocking();
        let waiting = spawn(move || request.acquire_within(PATIENCE));
        until("it waits", || {
            queue_keys(&cluster.command(cluster.leader(), &["get", "-w=json", "--prefix", "/locks/a/"])).len()
                == 2
        });
        sleep(rng().millis(0..1000));
        let leader = cluster.leader();
        let lost = [leader, (leader + 1) % 3];
        lost.into_iter().for_each(|node| cluster.pause(node));
        let end = Instant::now() + away;
        while Instant::now() < end {
            assert!(!(waiting.is_finished() && guard.check()), "I1");
            sleep(millis(5));
        }
        let still_valid = guard.check();
        assert!(still_valid || away > ttl, "the lease has not ended");
        assert!(!still_valid || away < ttl, "lost although no server answers");
        lost.into_iter().for_each(|node| cluster.resume(node));
        if still_valid {
            sleep(LONG / 3);
            assert!(guard.check() && !waiting.is_finished());
            guard.release_blocking().unwrap();
        } else {
            assert!(guard.release_blocking().is_err());
        }
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
        expect_clean(&cluster);
    }
}

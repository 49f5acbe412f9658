//! The general rows, and F50, on three ZooKeeper servers, some of them stopped, killed or cut off.

use std::{thread::sleep, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::ZookeeperEnsemble;

use crate::{
    crowd::Crowd,
    rig::{acquire, rng, until, warm},
    zookeeper_rig::{SHORTEST, nodes},
};

/// A ttl that outlasts an election and the move of a client from a dead server to another.
const LONG: Duration = Duration::from_secs(15);
/// A ttl that outlasts all faults of a test on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

fn connect(ensemble: &ZookeeperEnsemble) -> Locks {
    Locks::connect(&ensemble.url()).unwrap()
}

fn expect_clean(ensemble: &ZookeeperEnsemble) {
    until("no node is left", || nodes(&ensemble.four_letter_command(ensemble.leader(), "dump")).is_empty());
}

/// Injects a fault while there are holds: one during the whole test, and many short ones.
fn under_load(inject: impl FnOnce(&mut ZookeeperEnsemble, &Crowd)) {
    let mut ensemble = ZookeeperEnsemble::start();
    let holder = connect(&ensemble);
    let guard = acquire(&holder, "held", LONGEST);
    let crowd = Crowd::of(&ensemble.url(), LONG);
    crowd.wait_for_grants(10);
    inject(&mut ensemble, &crowd);
    crowd.wait_for_grants(10);
    crowd.expect_exclusion();
    assert!(guard.check(), "the remaining servers renewed it");
    guard.release_blocking().unwrap();
    expect_clean(&ensemble);
}

#[test]
fn zookeeper_leader_is_killed() {
    under_load(|ensemble, crowd| {
        sleep(rng().millis(0..300));
        let leader = ensemble.leader();
        ensemble.kill(leader);
        crowd.wait_for_grants(10);
        ensemble.restart(leader);
    });
}

#[test]
fn zookeeper_follower_is_cut_off_and_then_the_leader() {
    under_load(|ensemble, crowd| {
        sleep(rng().millis(0..300));
        let follower = (ensemble.leader() + 1) % 3;
        for node in [follower, ensemble.leader()] {
            ensemble.cut(node);
            let serves = |node| !ensemble.four_letter_command(node, "srvr").contains("not currently serving");
            until("the server notices", || !serves(node));
            crowd.wait_for_grants(10);
            ensemble.heal(node);
        }
    });
}

#[test]
fn zookeeper_leader_is_stopped_and_resumed() {
    under_load(|ensemble, crowd| {
        let leader = ensemble.leader();
        ensemble.pause(leader);
        sleep(rng().millis(100..9000));
        ensemble.resume(leader);
        crowd.wait_for_grants(10);
    });
}

/// The server still answers for some seconds after its leader has ended the session.
#[test]
fn f50_server_of_a_holder_is_cut_off_from_the_others() {
    let mut ensemble = ZookeeperEnsemble::start();
    let leader = ensemble.leader();
    let ports = ensemble.ports();
    for node in [(leader + 1) % 3, leader] {
        let cut = Locks::connect(&format!("zookeeper://127.0.0.1:{}", ports[node])).unwrap();
        let other = ports.iter().enumerate().filter(|(at, _)| *at != node);
        let other: Vec<_> = other.map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        let other = Locks::connect(&format!("zookeeper://{}", other.join(","))).unwrap();
        warm(&other, SHORTEST);
        let guard = acquire(&cut, "a", SHORTEST);
        sleep(rng().millis(0..1500));
        ensemble.cut(node);
        let next = acquire(&other, "a", LONGEST);
        assert!(!guard.check(), "I1: {} and {}", guard.token(), next.token());
        assert!(next.token() > guard.token(), "I4");
        ensemble.heal(node);
        next.release_blocking().unwrap();
    }
    expect_clean(&ensemble);
}

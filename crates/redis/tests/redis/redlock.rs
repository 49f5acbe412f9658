//! Conformance of the Redlock engine with three and with five nodes.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, BoxFuture, Engine, Env, Hold, How, Mode, Renewed};
use leasehold_redis::RedlockEngine;
use leasehold_testkit::suite::{self, Disturbance, Harness, wait_for_no_leftovers};

use crate::{
    redlock_rig::RedlockRig,
    rig::{AT_ONCE, claim_of},
};

impl Harness for RedlockRig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async {
            Arc::new(RedlockEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine>
        })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        // A node that lost its data has no vote for as long as the longest lease, which is too long here:
        // `redlock_faults` tests `Forget`.
        let cuts = kind == Disturbance::Cut;
        if cuts {
            self.command_all(&["CLIENT", "KILL", "TYPE", "normal"]);
            self.command_all(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        Box::pin(std::future::ready(cuts))
    }

    fn parallel_cases(&self) -> usize {
        // Under too much load every answer is late, and the engine cannot compare the clocks of the nodes.
        AT_ONCE / self.nodes.len()
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.leftovers()))
    }
}

fn conforms(nodes: usize) {
    let report = suite::engine(&RedlockRig::new(nodes));
    assert!(report.passed.len() > 45, "{report}");
}

#[test]
fn three_nodes_conform() {
    conforms(3);
}

#[test]
fn five_nodes_conform() {
    conforms(5);
}

/// A lock is stored in the same format as by other Redlock programs: the same string on all nodes, with an expiry.
#[test]
fn every_node_stores_the_same_plain_string() {
    let rig = RedlockRig::new(3);
    let guard = rig.locks().mutex("a").blocking().acquire().unwrap();
    rig.until("it is on all nodes", || {
        rig.command_all(&["GET", "lock:a"]).iter().all(|value| !value.is_empty())
    });
    let values = rig.command_all(&["GET", "lock:a"]);
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    for remaining_ms in rig.command_all(&["PTTL", "lock:a"]) {
        assert!((1..=30_000).contains(&remaining_ms.parse::<i64>().unwrap()), "{remaining_ms}");
    }
    assert!(values[0].starts_with(&guard.id().to_string()), "{values:?}");
    guard.release_blocking().unwrap();
    rig.until("it is gone", || rig.command_all(&["GET", "lock:a"]).iter().all(String::is_empty));
}

/// `leasehold check` and a late request renew for less time than the lock has.
#[test]
fn a_shorter_renewal_does_not_shorten_the_lock() {
    let rig = RedlockRig::new(3);
    let guard = rig.locks().mutex("a").renew(false).blocking().acquire().unwrap();
    let hold = Hold {
        id: guard.id(),
        name: guard.name().clone(),
        mode: Mode::Exclusive,
        token: guard.token(),
        ttl: Duration::from_secs(1),
    };
    let renewed = rig.run(rig.engine().renew(&[hold]));
    assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
    for remaining_ms in rig.command_all(&["PTTL", "lock:a"]) {
        assert!(remaining_ms.parse::<i64>().unwrap() > 5_000, "{remaining_ms} ms of 30 s");
    }
    guard.release_blocking().unwrap();
}

#[test]
fn readers_and_permits_are_refused_with_the_reason() {
    let rig = RedlockRig::new(3);
    let locks = rig.locks();
    let shared = locks.rw("a").read().blocking().acquire().unwrap_err();
    assert!(shared.is_misconfigured() && shared.to_string().contains("names one holder"), "{shared}");
    let permits = locks.semaphore("a", 2).blocking().acquire().unwrap_err();
    assert!(
        permits.is_misconfigured() && permits.to_string().contains("each node counts alone"),
        "{permits}"
    );
    assert_eq!(locks.profile().modes, leasehold_core::Modes::Exclusive);
}

/// One request to each node is enough once the engine knows the clocks of the nodes.
#[test]
fn a_free_name_is_granted_by_one_request_to_each_node() {
    let rig = RedlockRig::new(3);
    let engine: Arc<dyn Engine> = rig.engine();
    let scripts = || {
        let calls = |stats: &String| {
            let calls =
                stats.split("cmdstat_evalsha:calls=").nth(1).map(|rest| rest.split(',').next().unwrap());
            calls.map_or(0, |calls| calls.parse::<u32>().unwrap())
        };
        rig.command_all(&["INFO", "commandstats"]).iter().map(calls).sum::<u32>()
    };
    rig.run(async {
        let claim = claim_of("first");
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
    });
    // A slow answer costs more requests. Of several attempts at least one is fast enough, even on a busy machine.
    let request_counts = (0..20).map(|number| {
        let before = scripts();
        let claim = claim_of(&format!("a{number}"));
        rig.run(async {
            assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Held(_))));
        });
        rig.until("all are asked", || scripts() >= before + 3);
        scripts() - before
    });
    assert_eq!(request_counts.min(), Some(3));
}

#[test]
fn a_refused_claim_of_another_mode_leaves_no_key() {
    let rig = RedlockRig::new(3);
    let engine = rig.engine();
    let claim = leasehold_core::Claim { mode: Mode::Shared, ..claim_of("a") };
    rig.run(async { engine.claim(&claim, How::Create).await.unwrap_err() });
    assert!(rig.command_all(&["EXISTS", "lock:a"]).iter().all(|exists| exists == "0"));
}

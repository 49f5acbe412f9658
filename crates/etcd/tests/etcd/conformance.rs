//! The conformance suite on etcd.

use std::sync::Arc;

use leasehold_core::{BoxFuture, Engine, Env};
use leasehold_etcd::{Config, EtcdEngine};
use leasehold_testkit::{
    server::EtcdCluster,
    suite::{self, Disturbance, Harness, Stored, max_waiters_or, wait_for_no_leftovers},
};

use crate::rig::{Rig, local, locks};

/// How many claims wait in the largest case, except at night.
const CROWD: usize = 250;

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let config = self.config.clone().members(vec![local(self.proxy.port())]);
        Box::pin(async move { Arc::new(EtcdEngine::new(config, &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => drop(self.server.command(&["del", "", "--from-key"])),
            Disturbance::Cut => self.proxy.reset(),
            Disturbance::HoldAnswers => self.proxy.hold_answers(),
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn stored(&self) -> Stored {
        if self.stores_names_only() { Stored::NamesOnly } else { Stored::Everything }
    }

    fn grants_after_releases(&self) -> bool {
        self.has_lock_keys()
    }

    fn max_waiters(&self) -> usize {
        max_waiters_or(CROWD)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.keys()))
    }
}

/// A cluster of three members; each client uses any of them.
struct ThreeMembers {
    cluster: EtcdCluster,
    config: Config,
}

impl Harness for ThreeMembers {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async { Arc::new(EtcdEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        let forgets = kind == Disturbance::Forget;
        if forgets {
            self.cluster.command(0, &["del", "", "--from-key"]);
        }
        Box::pin(std::future::ready(forgets))
    }

    fn max_waiters(&self) -> usize {
        max_waiters_or(CROWD)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| {
            locks(self.cluster.command(1, &["get", "", "--prefix", "--keys-only"]))
        }))
    }
}

#[test]
fn the_etcd_engine_conforms() {
    let rig = Rig::new();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 110, "{report}");
}

#[test]
fn the_etcd_engine_conforms_with_lock_keys() {
    let rig = Rig::with_lock_keys("");
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 90, "{report}");
}

#[test]
fn the_etcd_engine_conforms_on_three_members() {
    let cluster = EtcdCluster::start();
    let config = Config::new(cluster.ports().map(local).to_vec());
    let report = suite::engine(&ThreeMembers { cluster, config });
    assert!(report.passed.len() > 110, "{report}");
}

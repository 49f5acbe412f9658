//! The ZooKeeper engine passes the conformance suite.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use leasehold_core::{BoxFuture, Engine, Env};
use leasehold_testkit::{
    server::ZookeeperEnsemble,
    suite::{self, Disturbance, Harness, wait_for_no_leftovers},
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::rig::{Rig, ephemerals, local};

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let config = self.config.clone().servers(vec![local(self.proxy.port())]);
        Box::pin(async move { Arc::new(ZookeeperEngine::new(config, &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => until_deleted(|| self.server.command_as_super("deleteall /locks")),
            Disturbance::Cut => self.proxy.reset(),
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.nodes()))
    }
}

/// Three servers. Each client uses any of them.
struct ThreeServers {
    ensemble: ZookeeperEnsemble,
    config: Config,
}

impl Harness for ThreeServers {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        Box::pin(async {
            Arc::new(ZookeeperEngine::new(self.config.clone(), &Env::system())) as Arc<dyn Engine>
        })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        let forgets = kind == Disturbance::Forget;
        if forgets {
            self.forget();
        }
        Box::pin(std::future::ready(forgets))
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| {
            ephemerals(&self.ensemble.four_letter_command(self.ensemble.leader(), "dump"))
        }))
    }
}

impl ThreeServers {
    fn forget(&self) {
        until_deleted(|| drop(self.ensemble.command(0, &["deleteall", "/locks"])));
    }
}

/// Deletes everything, with retries: a deletion fails when a server or a client deletes an empty directory at the same
/// time.
fn until_deleted(delete: impl Fn()) {
    let deleted = || catch_unwind(AssertUnwindSafe(&delete)).is_ok();
    assert!((0..5).any(|_| deleted()), "nothing can be deleted");
}

#[test]
fn the_zookeeper_engine_conforms() {
    let rig = Rig::new();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 80, "{report}");
}

/// With `layout=plain` there are exclusive locks only, so cases of other modes do not apply.
#[test]
fn the_zookeeper_engine_conforms_with_the_layout_of_programs_written_by_hand() {
    let rig = Rig::plain();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 45, "{report}");
}

#[test]
fn the_zookeeper_engine_conforms_on_three_servers() {
    let ensemble = ZookeeperEnsemble::start();
    let config = Config::new(ensemble.ports().map(local).to_vec());
    let report = suite::engine(&ThreeServers { ensemble, config });
    assert!(report.passed.len() > 80, "{report}");
}

//! The ZooKeeper engine passes the conformance suite.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use leasehold_core::{BoxFuture, Engine, Env};
use leasehold_testkit::{
    server::ZookeeperEnsemble,
    suite::{self, Disturbance, Harness, Report, max_waiters_or, wait_for_no_leftovers},
};
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    raw_client::RawClient,
    rig::{Rig, ephemerals, local},
};

/// How many claims wait in the largest case, except at night: each of them lists the claims before it.
const CROWD: usize = 250;

impl Harness for Rig {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let config = self.config.clone().servers(vec![local(self.proxy.port())]);
        Box::pin(async move { Arc::new(ZookeeperEngine::new(config, &Env::system())) as Arc<dyn Engine> })
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        match kind {
            Disturbance::Forget => until_deleted(|| self.server.command_as_super("deleteall /locks")),
            Disturbance::Cut => self.proxy.reset(),
            Disturbance::HoldAnswers => self.proxy.hold_answers(),
            _ => return Box::pin(std::future::ready(false)),
        }
        Box::pin(std::future::ready(true))
    }

    fn max_waiters(&self) -> usize {
        max_waiters_or(CROWD)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| [self.nodes(), memos(self.server.port())].concat()))
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

    fn max_waiters(&self) -> usize {
        max_waiters_or(CROWD)
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| {
            let leader = self.ensemble.leader();
            let claims = ephemerals(&self.ensemble.four_letter_command(leader, "dump"));
            [claims, memos(self.ensemble.ports()[leader])].concat()
        }))
    }
}

impl ThreeServers {
    fn forget(&self) {
        until_deleted(|| drop(self.ensemble.command(0, &["deleteall", "/locks"])));
    }
}

/// The memos on the server at this port.
fn memos(port: u16) -> Vec<String> {
    let mut client = RawClient::as_super(port);
    let memos = client.memos();
    client.close();
    memos
}

/// Deletes everything, with retries: a deletion fails when a server or a client deletes an empty directory at the same
/// time.
fn until_deleted(delete: impl Fn()) {
    let deleted = || catch_unwind(AssertUnwindSafe(&delete)).is_ok();
    assert!((0..5).any(|_| deleted()), "nothing can be deleted");
}

/// Every case about memos and their followers ran, except one: holds are not converted on ZooKeeper.
fn assert_no_memo_is_skipped(report: &Report) {
    let is_of_memos = |(case, _): &&(&str, String)| {
        (case.contains("memo") || case.contains("follower")) && !case.contains("downgrade")
    };
    assert!(report.skipped.iter().find(is_of_memos).is_none(), "{report}");
}

#[test]
fn the_zookeeper_engine_conforms() {
    let rig = Rig::new();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 110, "{report}");
    assert_no_memo_is_skipped(&report);
}

/// With `layout=plain` there are exclusive locks only, so cases of other modes do not apply.
#[test]
fn the_zookeeper_engine_conforms_with_the_layout_of_programs_written_by_hand() {
    let rig = Rig::plain();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 45, "{report}");
}

/// With `layout=latch` there are exclusive locks only, and holds are broken by force only.
#[test]
fn the_zookeeper_engine_conforms_with_the_layout_of_leader_latches() {
    let rig = Rig::latch();
    let report = suite::engine(&rig);
    assert!(report.passed.len() > 70, "{report}");
    assert_no_memo_is_skipped(&report);
}

#[test]
fn the_zookeeper_engine_conforms_on_three_servers() {
    let ensemble = ZookeeperEnsemble::start();
    let config = Config::new(ensemble.ports().map(local).to_vec());
    let report = suite::engine(&ThreeServers { ensemble, config });
    assert!(report.passed.len() > 110, "{report}");
    assert_no_memo_is_skipped(&report);
}

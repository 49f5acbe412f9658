//! The locks of sessions conform.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Inspect};
use leasehold_sql::SessionEngine;
use leasehold_testkit::{
    server::MariadbServer,
    suite::{self, Disturbance, Harness, wait_for_no_leftovers},
};

use super::rig::{Program, keys_of};
use crate::{
    rig::{PATIENCE, Rig, claim},
    until::until,
};

/// The number of claims in the largest case.
const CROWD: usize = 100;
/// The options with which a server lists the locks of sessions.
const LISTING: [&str; 2] =
    ["--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"];
/// The keys that sessions have, on a server with these options.
const KEYS: &str =
    "SELECT object_name FROM performance_schema.metadata_locks WHERE object_type = 'USER LEVEL LOCK'";

struct Sessions(Rig);

impl Harness for Sessions {
    fn client(&self) -> BoxFuture<'_, Arc<dyn Engine>> {
        let engine: Arc<SessionEngine> = self.0.session();
        Box::pin(std::future::ready(engine as Arc<dyn Engine>))
    }

    fn disturb(&self, kind: Disturbance) -> BoxFuture<'_, bool> {
        // A cut connection ends its session, so `Cut` is not possible.
        let is_possible = kind == Disturbance::Forget;
        if is_possible {
            let ours = self.0.sessions();
            for session in &ours {
                // Another case may have ended the session already.
                let _ = self.0.server.succeeds(&format!("KILL CONNECTION {session}"));
            }
            until("the sessions have ended", || !self.0.sessions().iter().any(|one| ours.contains(one)));
        }
        Box::pin(std::future::ready(is_possible))
    }

    fn parallel_cases(&self) -> usize {
        4
    }

    fn max_waiters(&self) -> usize {
        suite::max_waiters_or(CROWD)
    }

    fn grants_after_releases(&self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn leftovers(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(wait_for_no_leftovers(|| self.0.server.query(KEYS)))
    }
}

#[test]
fn the_locks_of_sessions_conform() {
    let report = suite::engine(&Sessions(Rig::of(MariadbServer::start(&LISTING))));
    assert!(report.passed.len() > 30, "{report}");
}

/// Keys that this process does not know are listed by their text; other servers say what they lack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_lists_its_locks_if_it_records_them() {
    let rig = Rig::of(MariadbServer::start(&LISTING));
    let mut program = Program::connect(&rig.server).await;
    assert!(program.locks("theirs").await);
    let one = rig.session_with(keys_of("name"));
    crate::rig::claim_and_hold(&*one, &claim("ours")).await;
    let listed = |views: Vec<leasehold_core::View>| -> Vec<_> {
        views.iter().map(|view| (view.key.clone(), view.holders.len())).collect()
    };
    let both = [("GET_LOCK('theirs')".to_owned(), 1), ("GET_LOCK('ours')".to_owned(), 1)];
    assert_eq!(listed(one.list("").await.unwrap()), both);
    let silent = Rig::of(MariadbServer::start(&["--performance-schema=OFF"]));
    let error = silent.session().list("").await.unwrap_err();
    assert!(error.message.contains("performance_schema=ON"), "{error:?}");
}

//! One client, for blocking code. Its background tasks run on a runtime of its own.

use std::{path::Path, sync::Arc, time::Duration};

use leasehold_core::{
    Answer, Claim, ClaimId, Engine, EngineError, Env, Fault, Grant, Hold, How, Inspect, Mode, Name,
    Notification, Previous, Release, Released, Renewed, View,
};
use leasehold_sql::{SqlEngine, sqlite::engine};
use tokio::runtime::Runtime;

use crate::rig::PATIENCE;

pub(crate) struct Client {
    pub(crate) engine: Arc<SqlEngine>,
    pub(crate) runtime: Runtime,
}

pub(crate) fn claim(name: &str) -> Claim {
    let mut id = [0; 16];
    Env::system().entropy.fill(&mut id);
    Claim {
        id: ClaimId(id),
        name: Name::new(name).unwrap(),
        mode: Mode::Exclusive,
        // Longer than any test.
        ttl: Duration::from_secs(600),
        claim_time: Duration::from_secs(600),
        may_queue: true,
        tokens: 1,
        owner: Arc::from("tester"),
        stops_on_term: false,
    }
}

impl Client {
    pub(crate) fn new(path: &Path) -> Self {
        let engine = Arc::new(engine(path, &Env::system()).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { engine, runtime }
    }

    pub(crate) fn create(&self, claim: &Claim) -> Result<Answer, EngineError> {
        self.runtime.block_on(self.engine.claim(claim, How::Create))
    }

    #[track_caller]
    pub(crate) fn hold(&self, claim: &Claim) -> Grant {
        match self.create(claim) {
            Ok(Answer::Held(grant)) => grant,
            other => panic!("expected a hold: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn enqueue(&self, claim: &Claim) {
        let answer = self.create(claim);
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "expected a queue entry: {answer:?}");
    }

    /// The error of the first request to an unusable file.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (Fault, String) {
        let error = self.create(&claim("job")).expect_err("the claim is refused");
        (error.fault, error.message)
    }

    pub(crate) fn renew(&self, claim: &Claim, grant: &Grant) -> Renewed {
        let Claim { id, name, mode, ttl, .. } = claim.clone();
        let hold = Hold { id, name, mode, ttl, token: grant.token };
        self.runtime.block_on(self.engine.renew(&[hold])).pop().unwrap()
    }

    pub(crate) fn release(&self, claim: &Claim, grant: &Grant) -> Released {
        let Claim { id, name, mode, .. } = claim.clone();
        let token = Some(grant.token);
        let release = Release { id, name, mode, token, ended: Previous::Clean, min_hold: None };
        self.runtime.block_on(self.engine.release(&[release])).pop().unwrap()
    }

    #[track_caller]
    pub(crate) fn release_hold(&self, claim: &Claim, grant: &Grant) {
        let released = self.release(claim, grant);
        assert!(matches!(released, Released::Freed), "{released:?}");
    }

    /// Waits until the claim is granted.
    #[track_caller]
    pub(crate) fn wait_for_grant(&self, id: ClaimId) -> Grant {
        let granted = async {
            loop {
                for notification in self.engine.notifications().await {
                    if let Notification::Granted { id: granted, grant, .. } = notification
                        && granted == id
                    {
                        return grant;
                    }
                }
            }
        };
        let granted = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, granted).await });
        granted.expect("the claim is granted")
    }

    pub(crate) fn list(&self) -> Vec<View> {
        self.runtime.block_on(self.engine.list("")).unwrap()
    }

    pub(crate) fn show(&self, name: &str) -> Result<View, EngineError> {
        self.runtime.block_on(self.engine.show(&Name::new(name).unwrap()))
    }
}

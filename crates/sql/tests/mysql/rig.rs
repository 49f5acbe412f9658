//! A server and its clients.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{
    Answer, Claim, ClaimId, Engine, Env, Fault, Grant, Hold, How, Mode, Name, Previous, Release, Released,
    Renewed,
};
use leasehold_sql::{
    SqlEngine,
    mysql::{Config, engine},
};
use leasehold_testkit::server::{MariadbServer, Proxy};

/// Not a measure of speed: for what never comes if it does not come soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Rig {
    pub(crate) server: MariadbServer,
    /// Through which the clients of the suite come, so that they can be cut off.
    pub(crate) proxy: Proxy,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::of(MariadbServer::start(&[]))
    }

    pub(crate) fn of(server: MariadbServer) -> Self {
        Self { proxy: Proxy::start(server.port()), server }
    }

    pub(crate) fn engine(&self) -> Arc<SqlEngine> {
        self.through(self.server.port())
    }

    /// A client that comes through the proxy.
    pub(crate) fn proxied(&self) -> Arc<SqlEngine> {
        self.through(self.proxy.port())
    }

    pub(crate) fn through(&self, port: u16) -> Arc<SqlEngine> {
        at(&format!("//root@127.0.0.1:{port}/locks"))
    }

    /// All rows that say something.
    pub(crate) fn left(&self) -> Vec<String> {
        self.server.says(
            "SELECT name, stand FROM leasehold_claim UNION ALL \
             SELECT name, -1 FROM leasehold_lock WHERE holder IS NOT NULL OR claims <> 0",
        )
    }
}

pub(crate) fn at(url: &str) -> Arc<SqlEngine> {
    Arc::new(engine(Config::from_url(url).unwrap(), &Env::system()))
}

/// An exclusive claim that takes no place in line and lasts longer than any test.
pub(crate) fn claim(name: &str) -> Claim {
    let ttl = Duration::from_secs(600);
    Claim {
        id: ClaimId(Env::system().lineage().get().to_be_bytes()),
        name: Name::new(name).unwrap(),
        mode: Mode::Exclusive,
        ttl,
        claim_time: ttl,
        may_queue: false,
        tokens: 1,
        owner: "tester".into(),
        stops_on_term: false,
    }
}

pub(crate) async fn take(engine: &dyn Engine, claim: &Claim) -> Grant {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.claim(claim, How::Create).await {
            Ok(Answer::Held(grant)) => return grant,
            // A busy machine keeps it from its server: nothing was asked.
            Err(error) if error.fault == Fault::Retry && Instant::now() < limit => {}
            other => panic!("{}: {other:?}", claim.name),
        }
    }
}

pub(crate) async fn finds_taken(engine: &dyn Engine, name: &str) {
    let answer = engine.claim(&claim(name), How::Create).await;
    assert!(matches!(answer, Ok(Answer::Taken(_))), "{name}: {answer:?}");
}

pub(crate) fn hold(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}

/// What becomes of a hold, once that is told.
pub(crate) async fn renewed(engine: &dyn Engine, hold: &Hold) -> Renewed {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.renew(std::slice::from_ref(hold)).await.remove(0) {
            Renewed::Unknown(error) => assert!(Instant::now() < limit, "{error:?}"),
            told => return told,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn free(engine: &dyn Engine, claim: &Claim, grant: &Grant) {
    let (id, name, mode) = (claim.id, claim.name.clone(), claim.mode);
    let release = Release { id, name, mode, token: Some(grant.token), ended: Previous::Clean, keep: None };
    let released = engine.release(&[release]).await.remove(0);
    assert!(matches!(released, Released::Freed), "{}: {released:?}", claim.name);
}

/// Waits until `done`, for an event that is certain to come.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! A server and its clients.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{
    AllAnswer, Answer, Broken, Claim, ClaimId, Engine, Env, Fault, Grant, Hold, How, Inspect, Mode,
    Notification, Previous, Release, Released, Renewed,
};
use leasehold_sql::{
    SqlEngine,
    mysql::{Config, engine},
};
use leasehold_testkit::{
    claims,
    server::{Brand, MariadbServer, Proxy},
};

pub(crate) use crate::until::PATIENCE;

/// Whether the servers are MySQL's.
pub(crate) fn is_mysql() -> bool {
    Brand::found() == Brand::Mysql
}

/// Creates a user without rights.
pub(crate) const USER: &str = "CREATE USER locker@'%' IDENTIFIED BY 'p@ss/word'";

/// The URL of the server for this user.
pub(crate) fn as_user(rig: &Rig) -> String {
    format!("//locker:p%40ss%2Fword@127.0.0.1:{}/locks", rig.server.port())
}

pub(crate) struct Rig {
    pub(crate) server: MariadbServer,
    /// The clients of the conformance suite connect through it, so that they can be cut off.
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
        self.engine_through(self.server.port())
    }

    /// A client that connects through the proxy.
    pub(crate) fn proxied(&self) -> Arc<SqlEngine> {
        self.engine_through(self.proxy.port())
    }

    pub(crate) fn engine_through(&self, port: u16) -> Arc<SqlEngine> {
        engine_at(&format!("//root@127.0.0.1:{port}/locks"))
    }

    /// All rows that carry information.
    pub(crate) fn remaining_rows(&self) -> Vec<String> {
        self.server.query(
            "SELECT name, stand FROM leasehold_claim UNION ALL \
             SELECT name, -1 FROM leasehold_lock WHERE holder IS NOT NULL OR claims <> 0 UNION ALL \
             SELECT name, -2 FROM leasehold_memo",
        )
    }
}

pub(crate) fn engine_at(url: &str) -> Arc<SqlEngine> {
    Arc::new(engine(Config::from_url(url).unwrap(), &Env::system()))
}

/// An exclusive claim that does not queue and lasts longer than any test.
pub(crate) fn claim(name: &str) -> Claim {
    Claim { may_queue: false, owner: "tester".into(), ..claims::exclusive(name, Duration::from_secs(600)) }
}

pub(crate) async fn claim_and_hold(engine: &dyn Engine, claim: &Claim) -> Grant {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.claim(claim, How::Create).await {
            Ok(Answer::Held(grant)) => return grant,
            // On a busy machine the server sometimes does not answer in time; then the claim was not sent.
            Err(error) if error.fault == Fault::Retry && Instant::now() < limit => {}
            other => panic!("{}: {other:?}", claim.name),
        }
    }
}

pub(crate) async fn assert_taken(engine: &dyn Engine, name: &str) {
    let answer = engine.claim(&claim(name), How::Create).await;
    assert!(matches!(answer, Ok(Answer::Taken(_))), "{name}: {answer:?}");
}

pub(crate) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token: grant.token, ttl: claim.ttl }
}

/// The result of a renewal, as soon as it is certain.
pub(crate) async fn renewal_result(engine: &dyn Engine, hold: &Hold) -> Renewed {
    let limit = Instant::now() + PATIENCE;
    loop {
        match engine.renew(std::slice::from_ref(hold)).await.remove(0) {
            Renewed::Unknown(error) => assert!(Instant::now() < limit, "{error:?}"),
            answer => return answer,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn release_hold(engine: &dyn Engine, claim: &Claim, grant: &Grant) {
    let (id, name, mode) = (claim.id, claim.name.clone(), claim.mode);
    let release =
        Release { id, name, mode, token: Some(grant.token), ended: Previous::Clean, min_hold: None };
    let released = engine.release(&[release]).await.remove(0);
    assert!(matches!(released, Released::Freed), "{}: {released:?}", claim.name);
}

/// Uses every statement, except those about many names.
pub(crate) async fn use_every_statement(one: &Arc<SqlEngine>, other: &Arc<SqlEngine>) {
    for _ in 0..2 {
        let again = claim("again");
        let grant = claim_and_hold(&**one, &again).await;
        release_hold(&**one, &again, &grant).await;
    }
    let first = claim("a");
    let grant = claim_and_hold(&**one, &first).await;
    assert!(matches!(renewal_result(&**one, &hold_of(&first, &grant)).await, Renewed::Extended { .. }));
    let second = Claim { may_queue: true, ..claim("a") };
    assert!(matches!(other.claim(&second, How::Create).await, Ok(Answer::Waiting(_))));
    assert_eq!(one.show(&first.name).await.unwrap().waiters.len(), 1);
    release_hold(&**one, &first, &grant).await;
    let granted = pushed_grant(other, second.id).await;
    assert!(matches!(renewal_result(&**other, &hold_of(&second, &granted)).await, Renewed::Extended { .. }));
    assert_eq!(one.list("").await.unwrap().len(), 1);
    let broken = one.break_hold(&second.name, granted.token.number, true).await.unwrap();
    assert!(matches!(broken, Broken::Done), "{broken:?}");
    let third = Claim { mode: Mode::Shared, ..claim("b") };
    let shared = claim_and_hold(&**one, &third).await;
    release_hold(&**one, &third, &shared).await;
    let set = [claim("c"), Claim { mode: Mode::Shared, ..claim("d") }];
    let AllAnswer::Held(grants) = one.claim_all(&set).await.unwrap() else { panic!("both are free") };
    for (claim, grant) in set.iter().zip(&grants) {
        release_hold(&**one, claim, grant).await;
    }
    one.guarantee().await.unwrap();
}

/// The grant of a waiting claim, from the notifications to its client.
pub(crate) async fn pushed_grant(engine: &SqlEngine, claim: ClaimId) -> Grant {
    let notified = async {
        loop {
            for notification in engine.notifications().await {
                if let Notification::Granted { id, grant, .. } = notification
                    && id == claim
                {
                    return grant;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, notified).await.unwrap()
}

/// Waits until `done`, for an event that is certain to come.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

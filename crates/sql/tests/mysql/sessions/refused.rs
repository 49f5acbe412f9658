//! Servers on which a session lock would not exclude everybody, and users with few rights.

use leasehold_core::{
    Answer, Claim, Engine, EngineError, Fault, How, Inspect, Level, Mode, Notification, Renewed,
};
use leasehold_sql::{SessionEngine, SessionOptions};
use leasehold_testkit::server::MariadbServer;

use super::rig::{Program, event_of, keys_of, no_delay, session_at};
use crate::{
    rig::{Rig, USER, as_user, assert_taken, claim, claim_and_hold, hold_of, release_hold},
    until::until,
};

#[tokio::test]
async fn a_read_only_server_is_refused() {
    let rig = Rig::of(MariadbServer::start(&["--read-only=1"]));
    let error = rig.session().claim(&claim("a"), How::Create).await.unwrap_err();
    assert!(error.fault == Fault::Refused && error.message.contains("name the primary"), "{error:?}");
}

/// A primary that becomes a replica: from then on other clients lock elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_end_when_their_server_becomes_read_only() {
    let rig = Rig::new();
    let one = rig.session();
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    rig.server.query("SET GLOBAL read_only = 1");
    let renewed = one.renew(&[hold_of(&mine, &grant)]).await.remove(0);
    assert!(matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
    let error = refusal(&one);
    assert!(error.fault == Fault::Refused && error.message.contains("name the primary"), "{error:?}");
    rig.server.query("SET GLOBAL read_only = 0");
    claim_and_hold(&*rig.session(), &claim("a")).await;
}

/// The error of a claim on a server that became read-only, when the client has connected again. The first answers are
/// that the connection of the session is closed.
fn refusal(engine: &SessionEngine) -> EngineError {
    let mut last = None;
    until("the server is refused", || {
        let next = claim("b");
        let claiming = engine.claim(&next, How::Create);
        let answer = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(claiming));
        let error = answer.unwrap_err();
        let is_refused = error.fault != Fault::Retry;
        last = Some(error);
        is_refused
    });
    last.unwrap()
}

/// A waiting claim is not granted by a server that became read-only, however its name became free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_claim_is_not_granted_by_a_server_that_became_read_only() {
    let rig = Rig::new();
    let mut program = Program::connect(&rig.server).await;
    assert!(program.locks("a").await);
    let one = rig.session_with(keys_of("name"));
    let waiting = Claim { may_queue: true, ..claim("a") };
    assert!(matches!(one.claim(&waiting, How::Create).await, Ok(Answer::Waiting(_))));
    rig.server.query("SET GLOBAL read_only = 1");
    assert!(program.unlocks("a").await);
    let event = event_of(&one, waiting.id).await;
    assert!(matches!(event, Notification::Recheck { .. }), "{event:?}");
}

/// A session without holds sends no heartbeats, and finds out at its next claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_is_not_granted_by_a_server_that_became_read_only() {
    let rig = Rig::new();
    let one = rig.session();
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    release_hold(&*one, &mine, &grant).await;
    rig.server.query("SET GLOBAL read_only = 1");
    let answer = one.claim(&claim("b"), How::Create).await;
    assert!(answer.is_err(), "{answer:?}");
    let error = refusal(&one);
    assert!(error.fault == Fault::Refused && error.message.contains("name the primary"), "{error:?}");
}

/// A user who may do nothing but log in and name the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_to_tables_locks() {
    let rig = Rig::new();
    rig.server.query(USER);
    rig.server.query("GRANT SHOW VIEW ON locks.* TO locker@'%'");
    rig.wait_until_it_grants();
    let (one, other) = (session_at(&as_user(&rig), no_delay()), session_at(&as_user(&rig), no_delay()));
    let mine = claim("a");
    let grant = claim_and_hold(&*one, &mine).await;
    assert_taken(&*other, "a").await;
    let renewed = one.renew(&[hold_of(&mine, &grant)]).await.remove(0);
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    release_hold(&*one, &mine, &grant).await;
    other.guarantee().await.unwrap();
    assert_eq!(rig.server.query("SHOW TABLES FROM locks"), Vec::<String>::new());
}

/// A proxy can end a session whose process is not told yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_in_between_lowers_the_guarantee() {
    let rig = Rig::new();
    let at = |port: u16| session_at(&format!("//root@127.0.0.1:{port}/locks"), SessionOptions::default());
    let direct = at(rig.server.port()).guarantee().await.unwrap();
    assert_eq!(direct.level, Level::LeaseBounded, "{direct}");
    let proxied = at(rig.proxy.port()).guarantee().await.unwrap();
    assert_eq!(proxied.level, Level::BestEffort);
    assert!(proxied.to_string().contains("a proxy or NAT in between"), "{proxied}");
    assert!(SessionOptions::default().mysql_lock_key("sha256be").is_err());
}

#[tokio::test]
async fn other_modes_than_exclusive_are_refused() {
    let rig = Rig::new();
    let one = rig.session();
    for mode in [Mode::Shared, Mode::Permits { count: 1, limit: 2 }] {
        let error = one.claim(&Claim { mode, ..claim("a") }, How::Create).await.unwrap_err();
        assert!(
            error.fault == Fault::Misconfigured && error.message.contains("no shared locks"),
            "{error:?}"
        );
    }
}

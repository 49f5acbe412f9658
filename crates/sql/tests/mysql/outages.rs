//! Servers that restart, die, or stay silent; connections that are killed or half open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold_core::{Claim, Engine, Fault, How, Inspect, Locks, Mode, Renewed};
use leasehold_sql::mysql::{Config, engine};
use leasehold_testkit::{
    panic_clock::PanicClock,
    server::{MariadbServer, Proxy},
    stopwatch::Stopwatch,
};

use crate::{
    rig::{PATIENCE, Rig, assert_taken, claim, claim_and_hold, hold_of, release_hold, renewal_result},
    until::until,
};

/// The task that polls for grants panics. No other task polls.
#[test]
fn a_maintenance_task_that_panicked_is_restarted() {
    let rig = Rig::new();
    let (clock, env) = PanicClock::new("leasehold_sql::maintenance::run");
    let url = format!("//root@127.0.0.1:{}/locks", rig.server.port());
    let waiting_locks = Locks::builder(Arc::new(engine(Config::from_url(&url).unwrap(), &env))).build();
    let holding_locks = Locks::builder(rig.engine()).build();
    let guard = holding_locks.mutex("a").blocking().acquire_within(PATIENCE).unwrap();
    let waiting = std::thread::spawn(move || waiting_locks.mutex("a").blocking().acquire_within(PATIENCE));
    until("the claim waits", || holding_locks.show_blocking("a").is_ok_and(|view| view.waiters.len() == 1));
    clock.arm();
    until("the maintenance task dies", || clock.has_panicked());
    until("the task polls again", || clock.is_asked_again());
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

/// F57: a hold is a row, not a connection.
#[tokio::test]
async fn a_hold_outlives_its_connections() {
    let rig = Rig::new();
    let (one, other) = (rig.engine(), rig.engine());
    let claims = [claim("a"), Claim { mode: Mode::Shared, ..claim("b") }];
    let mut held = Vec::new();
    for claim in claims {
        let grant = claim_and_hold(&*one, &claim).await;
        held.push((claim, grant));
    }
    let threads = rig
        .server
        .query("SELECT id FROM information_schema.processlist WHERE db = 'locks' AND id <> CONNECTION_ID()");
    assert!(!threads.is_empty());
    for thread in threads {
        rig.server.query(&format!("KILL {thread}"));
    }
    for (claim, grant) in &held {
        let extended = renewal_result(&*one, &hold_of(claim, grant)).await;
        assert!(matches!(extended, Renewed::Extended { .. }), "{extended:?}");
        assert_taken(&*other, claim.name.as_str()).await;
        release_hold(&*one, claim, grant).await;
    }
    assert_eq!(rig.remaining_rows(), Vec::<String>::new());
}

#[tokio::test]
async fn a_hold_outlives_a_restart() {
    let mut rig = Rig::new();
    let (one, other) = (rig.engine(), rig.engine());
    let claims = [claim("a"), Claim { mode: Mode::Shared, ..claim("b") }];
    let mut held = Vec::new();
    for claim in claims {
        let grant = claim_and_hold(&*one, &claim).await;
        held.push((claim, grant));
    }
    rig.server.stop();
    let error = other.claim(&claim("a"), How::Create).await.unwrap_err();
    assert_eq!(error.fault, Fault::Retry, "{error:?}");
    let error = one.ping().await.unwrap_err();
    assert_eq!(error.fault, Fault::Retry, "{error:?}");
    rig.server.restart();
    one.ping().await.unwrap();
    for (claim, grant) in &held {
        let extended = renewal_result(&*one, &hold_of(claim, grant)).await;
        assert!(matches!(extended, Renewed::Extended { .. }), "{extended:?}");
        assert_taken(&*other, claim.name.as_str()).await;
        release_hold(&*one, claim, grant).await;
    }
}

/// After a crash of the server all acknowledged grants and tokens are still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_all_acknowledged_grants() {
    let mut rig = Rig::of(MariadbServer::durable(&[]));
    let one = rig.engine();
    // Creates the tables.
    claim_and_hold(&*one, &claim("first")).await;
    let killed = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (engine, killed) = (rig.engine(), Arc::clone(&killed));
        tasks.spawn(async move {
            let mut held = Vec::new();
            for number in 0.. {
                let mode = if number % 2 == 0 { Mode::Exclusive } else { Mode::Shared };
                let claim = Claim { mode, ..claim(&format!("{task}-{number}")) };
                match engine.claim(&claim, How::Create).await {
                    Ok(leasehold_core::Answer::Held(grant)) => held.push((claim, grant)),
                    // On a busy machine the server sometimes does not answer in time.
                    Err(_) if !killed.load(Ordering::Relaxed) => {}
                    _ => break,
                }
            }
            held
        });
    }
    crate::rig::until("some locks are held", || {
        rig.server.query("SHOW TABLES LIKE 'leasehold\\_lock'").len() == 1
            && rig.server.query("SELECT COUNT(*) > 100 FROM leasehold_lock") == ["1"]
    })
    .await;
    killed.store(true, Ordering::Relaxed);
    rig.server.kill();
    let held = tasks.join_all().await.concat();
    assert!(held.len() >= 50, "{}", held.len());
    rig.server.restart();
    for (claim, grant) in &held {
        let extended = renewal_result(&*one, &hold_of(claim, grant)).await;
        assert!(matches!(extended, Renewed::Extended { .. }), "{}: {extended:?}", claim.name);
    }
}

/// I12: a request on a dead connection fails in time, and later requests are answered.
#[tokio::test]
async fn a_half_open_connection_ends_in_time() {
    let rig = Rig::new();
    let assert_ends_in_time = async |mode, name: &str| {
        let proxy = Proxy::start(rig.server.port());
        let engine = rig.engine_through(proxy.port());
        let before = Claim { mode, ..claim(&format!("before {name}")) };
        let grant = claim_and_hold(&*engine, &before).await;
        proxy.hold_answers();
        let watch = Stopwatch::start();
        let error = engine.claim(&Claim { mode, ..claim(name) }, How::Create).await.unwrap_err();
        watch.assert_within(Duration::from_secs(6), "the request fails in time");
        assert!(matches!(error.fault, Fault::Unknown | Fault::Retry), "{error:?}");
        release_hold(&*engine, &before, &grant).await;
    };
    tokio::join!(assert_ends_in_time(Mode::Exclusive, "a"), assert_ends_in_time(Mode::Shared, "b"));
}

/// A dead connection that was idle for a while is detected by a ping, and the request uses another one, still in time.
#[tokio::test]
async fn a_silent_connection_is_pinged_before_use() {
    let rig = Rig::new();
    let engine = rig.proxied();
    let before = claim("before");
    let grant = claim_and_hold(&*engine, &before).await;
    rig.proxy.hold_answers();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    claim_and_hold(&*engine, &claim("a")).await;
    rig.proxy.cut_clients();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    release_hold(&*engine, &before, &grant).await;
}

/// A client that stops in the middle of a transaction delays the others for a bounded time only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stopped_in_a_transaction_is_rolled_back() {
    let rig = Rig::new();
    let (one, other) = (rig.proxied(), rig.engine());
    let shared = || Claim { mode: Mode::Shared, ..claim("a") };
    claim_and_hold(&*other, &shared()).await;
    claim_and_hold(&*one, &shared()).await;
    rig.proxy.hold_answers();
    let halfway = tokio::spawn(async move { one.claim(&shared(), How::Create).await.map(drop) });
    crate::rig::until("the transaction has locked the row", || {
        rig.server.query("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_locked > 0")
            != ["0"]
    })
    .await;
    let (watch, limit) = (Stopwatch::start(), Instant::now() + PATIENCE);
    let delayed_answer = other.claim(&Claim { mode: Mode::Shared, ..claim("a") }, How::Create).await;
    if let Err(error) = delayed_answer {
        assert_eq!(error.fault, Fault::Retry, "{error:?}");
    }
    while let Err(error) = other.claim(&Claim { mode: Mode::Shared, ..claim("a") }, How::Create).await {
        assert!(Instant::now() < limit, "{error:?}");
    }
    watch.assert_within(Duration::from_secs(10), "the other clients continue");
    let error = halfway.await.unwrap().unwrap_err();
    // On a busy machine the client may not learn in time that the server has ended the transaction.
    assert!(
        matches!(error.fault, Fault::Retry | Fault::Unknown),
        "nothing could be committed yet: {error:?}"
    );
}

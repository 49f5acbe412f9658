//! Connections and servers that end during holds, waits and requests.

use std::{
    sync::Arc,
    thread::spawn,
    time::{Duration, Instant},
};

use leasehold_core::{Answer, Claim, Engine, Fault, Grant, Hold, How, Locks, Released, Renewed};
use leasehold_testkit::server::{PostgresServer, psql};

use crate::rig::{PATIENCE, Rig, acquire, release_of, until};

/// F57: holds do not depend on sessions.
#[test]
fn holds_and_queue_entries_outlive_their_sessions() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.locks());
    let claim = rig.claim("a");
    let Ok(Answer::Held(grant)) = rig.run(engine.claim(&claim, How::Create)) else {
        panic!("the name is free")
    };
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    for _ in 0..10 {
        rig.server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'",
        );
        until("the hold is renewed by other sessions", || {
            let renewed = rig.run(engine.renew(&[hold_of(&claim, &grant)])).remove(0);
            assert!(!matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
            matches!(renewed, Renewed::Extended { .. })
        });
        assert!(!waiting.is_finished());
    }
    assert!(matches!(rig.run(engine.release(&release_of(&claim)))[..], [Released::Freed]));
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    let view = rig.show("a");
    // A tombstone may stay, against late requests of a claim that its client gave up.
    assert!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
}

/// F09: after a crash the server has all acknowledged changes.
#[test]
fn a_killed_server_keeps_its_grants() {
    let mut rig = Rig::of(PostgresServer::durable(&[]));
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a");
    let token = guard.token();
    let waiting = spawn(move || other.mutex("a").blocking().acquire_within(PATIENCE));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    let pings = rig.engine();
    rig.run(leasehold_core::Inspect::ping(&*pings)).unwrap();
    rig.server.kill();
    let error = rig.run(leasehold_core::Inspect::ping(&*pings)).unwrap_err();
    assert_eq!(error.fault, Fault::Retry, "{error:?}");
    rig.server.restart();
    rig.run(leasehold_core::Inspect::ping(&*pings)).unwrap();
    assert!(guard.check());
    assert_eq!(rig.show("a").holders.len(), 1);
    guard.release_blocking().unwrap();
    let next = waiting.join().unwrap().unwrap();
    assert!(next.token().number > token.number);
    next.release_blocking().unwrap();
    let view = rig.show("a");
    // A tombstone stays for a while, against a late request that the killed server did not answer.
    assert!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
}

/// F10: the connection is dead without having been closed.
#[test]
fn a_silent_connection_times_out() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (held, next) = (rig.claim("a"), rig.claim("b"));
    rig.run(async {
        assert!(matches!(engine.claim(&held, How::Create).await, Ok(Answer::Held(_))));
        proxy.hold_answers();
        let error = engine.claim(&next, How::Create).await.unwrap_err();
        assert_eq!(error.fault, Fault::Unknown, "{error}");
        proxy.drop_connections();
        proxy.release_held();
        // F73: the claim may have been granted; its release finds out.
        let released = loop {
            match &engine.release(&release_of(&next)).await[..] {
                [Released::Unknown(_)] => tokio::time::sleep(Duration::from_millis(20)).await,
                [certain] => break format!("{certain:?}"),
                other => panic!("{other:?}"),
            }
        };
        assert!(["Freed", "NotThere"].contains(&released.as_str()), "{released}");
        assert!(matches!(engine.release(&release_of(&held)).await[..], [Released::Freed]));
    });
    assert!(rig.show("a").holders.is_empty() && rig.show("b").holders.is_empty());
}

/// F73: a grant whose reply was lost is found again by the id of its claim.
#[test]
fn a_grant_with_a_lost_reply_is_found_again() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (first, claim) = (rig.claim("warm"), rig.claim("a"));
    rig.run(async {
        assert!(matches!(engine.claim(&first, How::Create).await, Ok(Answer::Held(_))));
        proxy.hold_answers();
        let pending_claim = tokio::spawn({
            let (engine, claim) = (Arc::clone(&engine), claim.clone());
            async move { engine.claim(&claim, How::Create).await }
        });
        let token =
            || rig.server.query("SELECT token FROM leasehold_lock WHERE name = 'a' AND holder IS NOT NULL");
        until("the claim was granted", || token().len() == 1);
        // The reply is not received.
        pending_claim.abort();
        assert!(!matches!(pending_claim.await, Ok(Ok(_))));
        let token = token().remove(0);
        proxy.drop_connections();
        proxy.release_held();
        let found = loop {
            match engine.claim(&claim, How::Create).await {
                Ok(Answer::Held(grant)) => break grant,
                Err(error) if error.fault != Fault::Internal => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(found.token.number.to_string(), token, "the same grant");
        engine.release(&[release_of(&claim), release_of(&first)].concat()).await;
    });
}

/// R9: late requests of a released claim have no effect.
#[test]
fn a_late_claim_creates_nothing() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let (first, claim) = (rig.claim("warm"), rig.claim("a"));
    rig.run(async {
        assert!(matches!(engine.claim(&first, How::Create).await, Ok(Answer::Held(_))));
        proxy.hold_requests();
        let answered =
            tokio::time::timeout(Duration::from_millis(300), engine.claim(&claim, How::Create)).await;
        assert!(answered.is_err(), "the request is in flight");
        // The same client, on another connection.
        proxy.block();
        proxy.unblock();
        let released = loop {
            match &engine.release(&release_of(&claim)).await[..] {
                [Released::Unknown(_)] => {
                    proxy.release_held();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                [certain] => break format!("{certain:?}"),
                other => panic!("{other:?}"),
            }
        };
        assert!(["Freed", "NotThere"].contains(&released.as_str()), "{released}");
        assert!(matches!(engine.claim(&claim, How::Create).await, Ok(Answer::Gone)));
        // Another client gets the same answer: the tombstone is in the table.
        let twin = rig.engine();
        assert!(matches!(twin.claim(&claim, How::Create).await, Ok(Answer::Gone)));
        engine.release(&release_of(&first)).await;
    });
    assert!(rig.show("a").holders.is_empty());
}

/// A session that keeps a row locked, for example an operator, blocks only that name.
#[test]
fn a_locked_row_blocks_only_its_own_name() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "a").release_blocking().unwrap();
    acquire(&locks, "b").release_blocking().unwrap();
    let blocker = rig.run(async {
        let url = rig.server.url();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN; SELECT FROM leasehold_lock WHERE name = 'a' FOR UPDATE").await.unwrap();
        client
    });
    let begun = Instant::now();
    let waiting = {
        let locks = locks.clone();
        spawn(move || locks.mutex("a").blocking().acquire_within(PATIENCE))
    };
    for _ in 0..20 {
        acquire(&locks, "b").release_blocking().unwrap();
    }
    assert!(!waiting.is_finished() || begun.elapsed() > PATIENCE);
    rig.run(blocker.batch_execute("ROLLBACK")).unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
}

/// R14: holds of other names are still renewed.
#[test]
fn a_locked_row_blocks_no_other_renewal() {
    let rig = Rig::new();
    let engine = rig.engine();
    // Long enough that single renewals still have time after the statement about all holds has timed out.
    let ttl = Duration::from_secs(30);
    let claims = ["a", "b", "c"].map(|name| Claim { ttl, ..rig.claim(name) });
    rig.run(async {
        let mut holds = Vec::new();
        for claim in &claims {
            let Ok(Answer::Held(grant)) = engine.claim(claim, How::Create).await else {
                panic!("the name is free")
            };
            holds.push(hold_of(claim, &grant));
        }
        let url = rig.server.url();
        let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let claims_of_a: Vec<Claim> = (0..12).map(|_| rig.claim("a")).collect();
        blocker.batch_execute("BEGIN; SELECT FROM leasehold_lock WHERE name = 'a' FOR UPDATE").await.unwrap();
        // More claims wait for that row than the client has connections.
        let waits: Vec<_> = claims_of_a
            .into_iter()
            .map(|claim| {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move { engine.claim(&claim, How::Create).await.map(drop) })
            })
            .collect();
        until("the claims wait", || rig.server.query("SELECT 1 FROM pg_locks WHERE NOT granted").len() >= 3);
        let limit = Instant::now() + PATIENCE;
        loop {
            let renewed = engine.renew(&holds).await;
            assert!(matches!(renewed[0], Renewed::Unknown(_)), "{renewed:?}");
            match renewed[1..] {
                [Renewed::Extended { .. }, Renewed::Extended { .. }] => break,
                // On a busy machine a single renewal may time out before it is sent.
                _ => assert!(Instant::now() < limit, "{renewed:?}"),
            }
        }
        blocker.batch_execute("ROLLBACK").await.unwrap();
        futures_util::future::join_all(waits).await;
    });
}

fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    let Claim { id, name, ttl, mode, .. } = claim.clone();
    Hold { id, name, ttl, token: grant.token, mode }
}

/// `VACUUM FULL`, `CLUSTER`, or an autovacuum that truncates the table: an unreadable table does not mean that nothing
/// is held.
#[test]
fn a_look_at_locked_tables_waits_or_fails() {
    let rig = Rig::new();
    let guard = acquire(&rig.locks(), "a");
    let locked = |seconds: &str| {
        format!(
            "BEGIN; LOCK TABLE leasehold_lock IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); COMMIT"
        )
    };
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    std::thread::scope(|scope| {
        let locker = scope.spawn(|| psql(rig.server.port(), &["-c", &locked("60")]));
        until("the table is locked", || rig.server.query(waits).len() == 1);
        let engine = rig.engine();
        let name = leasehold_core::Name::new("a").unwrap();
        let shown = rig.run(async { leasehold_core::Inspect::show(&*engine, &name).await });
        assert!(shown.as_ref().is_err_and(|error| error.fault == leasehold_core::Fault::Retry), "{shown:?}");
        let listed = rig.run(async { leasehold_core::Inspect::list(&*engine, "").await });
        assert!(listed.is_err(), "{listed:?}");
        rig.server.query("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        drop(locker);
    });
    assert_eq!(rig.show("a").holders.len(), 1);
    drop(guard);
}

/// A client with notifications hardly polls; before its wait ends, the client checks whether the server still answers.
#[test]
fn a_waiter_reports_a_silent_server() {
    let rig = Rig::new();
    let (proxy, engine) = rig.proxied();
    let _guard = acquire(&rig.locks(), "a");
    let locks = Locks::builder(engine).build();
    let waiting = spawn(move || locks.mutex("a").blocking().acquire_within(Duration::from_secs(8)));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    proxy.delay(PATIENCE);
    proxy.hold_answers();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

//! Limits of the server and of its roles.

use std::time::Duration;

use leasehold_core::{Answer, Claim, Engine, EngineError, Fault, Grant, Hold, How, Locks, Renewed};
use leasehold_testkit::{claims, server::PostgresServer};

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::{acquire, release_of};

/// A role that may do nothing but connect, with time limits that would end a session or a statement of ours.
const ROLE: &str = "CREATE ROLE leasehold LOGIN; REVOKE ALL ON DATABASE postgres FROM PUBLIC; \
    GRANT CONNECT ON DATABASE postgres TO leasehold; REVOKE ALL ON SCHEMA public FROM PUBLIC; \
    ALTER ROLE leasehold SET idle_session_timeout = '200ms'; ALTER ROLE leasehold SET statement_timeout = 1; \
    ALTER ROLE leasehold SET lock_timeout = 1; ALTER ROLE leasehold SET tcp_user_timeout = 1000; \
    ALTER ROLE leasehold SET idle_in_transaction_session_timeout = 1; \
    ALTER ROLE leasehold SET default_transaction_read_only = on; \
    ALTER ROLE leasehold SET default_transaction_isolation = serializable";

/// The right to connect is enough, and time limits of the role do not end the session.
#[test]
fn a_role_that_may_only_connect_can_lock() {
    let rig = SessionRig::new();
    rig.server.query(ROLE);
    let locks_of = || Locks::builder(engine_of("leasehold", rig.server.port(), at_once())).build();
    let (locks, other) = (locks_of(), locks_of());
    let guard = acquire(&locks, "a");
    let session = "SELECT pid FROM pg_stat_activity WHERE usename = 'leasehold'";
    let pid = rig.server.query(session);
    let long_idle = format!(
        "SELECT 1 FROM pg_stat_activity WHERE pid = {} AND clock_timestamp() - state_change > interval '1 s'",
        pid[0]
    );
    crate::rig::until("the session has been idle for longer than the role allows", || {
        assert_eq!(rig.server.query(session), pid);
        !rig.server.query(&long_idle).is_empty()
    });
    rig.run(guard.confirm()).unwrap();
    let waiting = std::thread::spawn(move || acquire(&other, "a"));
    crate::rig::until("the claim waits", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    waiting.join().unwrap().release_blocking().unwrap();
    acquire(&locks, "b").release_blocking().unwrap();
    for (mode, name) in [("shared", "c"), ("permits", "d")] {
        let held = match mode {
            "shared" => locks.rw(name).read().blocking().acquire(),
            _ => locks.semaphore(name, 3).blocking().acquire(),
        };
        held.unwrap().release_blocking().unwrap();
    }
    rig.run(locks.guarantee()).unwrap();
}

/// A process with very many names: a clear error while the server has room for others, and the session goes on with the
/// holds that it has.
#[test]
fn a_process_leaves_room_in_the_lock_table() {
    const NAMES: usize = 10_000;
    let rig = SessionRig::of(PostgresServer::start(&["max_locks_per_transaction=10", "max_connections=20"]));
    let engine = rig.engine();
    let claims: Vec<_> =
        (0..NAMES).map(|number| claims::exclusive(&format!("n{number}"), Duration::from_secs(600))).collect();
    rig.run(async {
        let mut holds = Vec::new();
        for chunk in claims.chunks(250) {
            let asked = chunk.iter().map(|claim| engine.claim(claim, How::Create));
            for (claim, answer) in chunk.iter().zip(futures_util::future::join_all(asked).await) {
                match answer {
                    Ok(Answer::Held(grant)) => holds.push(hold_of(claim, &grant)),
                    answer => expect_full(&answer),
                }
            }
        }
        assert_eq!(holds.len(), 10 * 20 / 2);
        assert_eq!(rig.advisory_locks().len(), holds.len(), "a refused claim left nothing");
        let renewed = engine.renew(&holds).await;
        assert!(renewed.iter().all(|one| matches!(one, Renewed::Extended { .. })));
        let releases: Vec<_> = claims.iter().flat_map(release_of).collect();
        engine.release(&releases).await;
        assert_eq!(rig.advisory_locks(), [""; 0]);
        let late = engine.claim(claims.last().unwrap(), How::Create).await;
        assert!(matches!(late, Ok(Answer::Gone)), "it was released: {late:?}");
    });
    acquire(&rig.locks(), "n1").release_blocking().unwrap();
}

/// Other programs fill the lock table: a clear error, and the session goes on.
#[test]
fn a_full_lock_table_is_reported_and_the_session_stays_sane() {
    let rig = SessionRig::of(PostgresServer::start(&["max_locks_per_transaction=10", "max_connections=20"]));
    let engine = rig.engine();
    let names = ["a", "b", "c"].map(|name| claims::exclusive(name, Duration::from_secs(600)));
    rig.run(async {
        let Ok(Answer::Held(grant)) = engine.claim(&names[0], How::Create).await else {
            panic!("it is free")
        };
        let (program, connection) =
            tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let full =
            program.batch_execute("SELECT pg_advisory_lock(x) FROM generate_series(1, 100000) AS x").await;
        assert_eq!(full.unwrap_err().code(), Some(&tokio_postgres::error::SqlState::OUT_OF_MEMORY));
        // The program keeps its locks after the error. There is room for some locks of a batch, and not for all.
        program.batch_execute("SELECT pg_advisory_unlock(x) FROM generate_series(1, 20) AS x").await.unwrap();
        let name = |number| claims::exclusive(&format!("n{number}"), Duration::from_secs(600));
        let others: Vec<_> = (0..60).map(name).collect();
        let asked = others.iter().map(|claim| engine.claim(claim, How::Create));
        let answers = futures_util::future::join_all(asked).await;
        // Which ones find room depends on what else the server locks and frees meanwhile.
        expect_full(answers.iter().find(|answer| answer.is_err()).expect("there is no room for all"));
        let renewed = engine.renew(&[hold_of(&names[0], &grant)]).await;
        assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
        program.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        assert!(matches!(engine.claim(&names[1], How::Create).await, Ok(Answer::Held(_))));
        let held = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Held(_)))).count();
        assert_eq!(rig.advisory_locks().len(), 2 + held, "a refused claim left nothing");
        let releases: Vec<_> = others.iter().chain(&names).flat_map(release_of).collect();
        engine.release(&releases).await;
    });
    assert_eq!(rig.advisory_locks(), [""; 0]);
}

/// The error for a full lock table.
fn expect_full(answer: &Result<Answer, EngineError>) {
    let Err(error) = answer else { panic!("{answer:?}") };
    assert!(
        error.fault == Fault::Refused && error.message.contains("max_locks_per_transaction"),
        "{error:?}"
    );
}

pub(super) fn hold_of(claim: &Claim, grant: &Grant) -> Hold {
    let Claim { id, name, ttl, mode, .. } = claim.clone();
    Hold { id, name, ttl, token: grant.token, mode }
}

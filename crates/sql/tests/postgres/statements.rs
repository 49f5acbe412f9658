//! How many statements a waiting client sends, and how much space grants need while a snapshot is open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Answer, Clock, Engine, Env, How, Instant};
use leasehold_sql::{
    SqlEngine,
    postgres::{Config, SCHEMA, engine},
};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, acquire, release_of, until};

const ROLES: &str = include_str!("../../../../docs/engines/postgres-roles.sql");
/// Three clients are near the head of the queue, the others are not.
const WAITERS: u64 = 5;
/// A client with notifications asks once in three such steps.
const STEP: Duration = Duration::from_secs(10);
const STEPS_PER_STATEMENT: u64 = 3;
const STEPS: u64 = 7;
/// So many reads of its clock show that a client has begun and ended a round of maintenance since the clock moved: a
/// round reads it up to seven times, and the round before that may still read it a few times.
const READS_OF_A_ROUND: u64 = 10;
/// How many grants and releases one name gets while a snapshot is open, and the bytes that one of them may cost.
const CYCLES: u64 = 2_000;
const BYTES_PER_CYCLE: u64 = 320;

/// A clock that moves only when the test moves it, and counts how often it is read.
pub(crate) struct SteppedClock {
    nanos: AtomicU64,
    reads: AtomicU64,
}

impl SteppedClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Instant {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }
}

/// A waiting client and its clock.
pub(crate) fn client(rig: &Rig) -> (Arc<SqlEngine>, Arc<SteppedClock>) {
    let clock = Arc::new(SteppedClock { nanos: AtomicU64::new(1_000_000_000), reads: AtomicU64::new(0) });
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::system() };
    let config = Config::from_url(&format!("//leasehold@127.0.0.1:{}/postgres", rig.server.port())).unwrap();
    (Arc::new(engine(config, &env)), clock)
}

/// R20: a waiting client has one connection and sends one statement in 30 s, which also counts the connections that
/// the server has left.
#[test]
fn a_waiting_client_sends_one_statement_in_thirty_seconds() {
    let rig = Rig::of(PostgresServer::start(&["shared_preload_libraries=pg_stat_statements"]));
    for statement in ["CREATE EXTENSION pg_stat_statements", SCHEMA, ROLES] {
        rig.server.query(statement);
    }
    let (holder, hold) = (rig.engine(), rig.claim("n"));
    assert!(matches!(rig.run(holder.claim(&hold, How::Create)), Ok(Answer::Held(_))));
    let clients: Vec<_> = (0..WAITERS).map(|_| client(&rig)).collect();
    for (engine, _) in &clients {
        let answer = rig.run(engine.claim(&rig.claim("n"), How::Create));
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    }
    // Counts every statement of the waiting clients, because no other client logs in as this role.
    let statements = || -> u64 {
        let query = "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE userid = 'leasehold'::regrole";
        rig.server.query(query)[0].parse().unwrap()
    };
    let rounds_end = || {
        let reads = |(_, clock): &(_, Arc<SteppedClock>)| clock.reads.load(Ordering::SeqCst);
        let before: Vec<_> = clients.iter().map(reads).collect();
        until("each client has looked at its clock", || {
            clients.iter().zip(&before).all(|(client, before)| reads(client) >= before + READS_OF_A_ROUND)
        });
    };
    rounds_end();
    let before = statements();
    assert!(before > WAITERS, "{before} statements: the server does not count them");
    for step in 1..=STEPS {
        for (_, clock) in &clients {
            clock.advance(STEP);
        }
        rounds_end();
        let expected = WAITERS * (step / STEPS_PER_STATEMENT);
        assert_eq!(statements() - before, expected, "after {step} steps of {STEP:?}");
    }
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'leasehold'";
    assert_eq!(rig.server.query(connections), [WAITERS.to_string()]);
    rig.run(holder.release(&release_of(&hold)));
}

/// A user who may not see the sessions of the server does not learn how many connections are left, and waits
/// nevertheless.
#[test]
fn a_client_without_the_right_to_count_connections_waits() {
    let rig = Rig::new();
    for statement in [SCHEMA, ROLES, "REVOKE SELECT ON pg_stat_activity FROM PUBLIC"] {
        rig.server.query(statement);
    }
    let (holder, hold) = (rig.engine(), rig.claim("n"));
    assert!(matches!(rig.run(holder.claim(&hold, How::Create)), Ok(Answer::Held(_))));
    let ((waiter, clock), claim) = (client(&rig), rig.claim("n"));
    assert!(matches!(rig.run(waiter.claim(&claim, How::Create)), Ok(Answer::Waiting(_))));
    let expires = || rig.server.query("SELECT expires FROM leasehold_claim WHERE stand = 4").remove(0);
    let before = expires();
    clock.advance(STEP * u32::try_from(STEPS_PER_STATEMENT).unwrap());
    until("the queue entry is extended", || expires() != before);
    rig.run(holder.release(&release_of(&hold)));
    rig.run(waiter.release(&release_of(&claim)));
}

/// The server keeps every old version of the row of a name while a snapshot is open; each version is small.
#[test]
fn grants_need_little_space_while_a_snapshot_is_open() {
    let rig = Rig::new();
    let locks = rig.locks();
    acquire(&locks, "hot").release_blocking().unwrap();
    let snapshot = rig.run(async {
        let (client, connection) =
            tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM leasehold_lock")
            .await
            .unwrap();
        client
    });
    let size =
        || -> u64 { rig.server.query("SELECT pg_total_relation_size('leasehold_lock')")[0].parse().unwrap() };
    let before = size();
    for _ in 0..CYCLES {
        acquire(&locks, "hot").release_blocking().unwrap();
    }
    let bytes = (size() - before) / CYCLES;
    println!("{bytes} bytes for each grant and release");
    assert!(bytes > 0, "the server keeps no old versions: the snapshot is not open");
    assert!(bytes <= BYTES_PER_CYCLE, "{bytes} bytes for each grant and release");
    drop(snapshot);
}

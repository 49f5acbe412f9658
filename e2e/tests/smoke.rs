//! Each engine under faults for longer than in `fault_run.rs`, with a fixed seed and with random seeds.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_e2e::{
    figures::Figures,
    rng::Rng,
    round::{Outcome, Round},
};

/// The least figures of a smoke run.
const OPERATIONS: u64 = 20_000;
const FAULTS: u64 = 200;
/// Rounds continue until these figures are reached; the test fails after this many.
const MAX_ROUNDS: u64 = 12;
/// The divisor of the figures for engines with elections, which have fewer and longer storms.
const OF_CLUSTER: u64 = 8;
/// The same for servers that wait for their disk.
const OF_SERVER: u64 = 4;
/// The same where a client that is stopped while it writes blocks the others.
const OF_FILE: u64 = 8;
/// The length of a round: two storms and the calms around them.
const ROUND: Duration = Duration::from_secs(20);

fn smoke(engine: &str) {
    smoke_for(engine, ROUND, 2);
}

/// Allows one storm at a time, because time that the machine does not give to its processes is not judged.
static ALONE: Mutex<()> = Mutex::new(());

fn smoke_for(engine: &str, time: Duration, part: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let random = Rng::random_seed();
    let mut sum = Figures::default();
    let mut seeds = [1, random].into_iter().chain(random + 1..).take(MAX_ROUNDS as usize);
    while sum.operations < OPERATIONS / part
        || sum.all_faults() < FAULTS / part
        || sum.rounds < 2
        || !sum.missing().is_empty()
    {
        let too_little = || panic!("too little happens, missing: {:?}\n{sum}", sum.missing());
        let seed = seeds.next().unwrap_or_else(too_little);
        println!("{engine}, seed {seed}");
        let program = Path::new(env!("CARGO_BIN_EXE_leasehold-e2e"));
        let Outcome { figures, complaints, .. } = Round { engine, seed, time, program }.run(|_| ()).unwrap();
        assert!(figures.holds(), "seed {seed}:\n{figures}\n{}", complaints.join("\n"));
        sum.add(&figures);
    }
    println!("{sum}");
}

#[test]
fn redis() {
    smoke("redis");
}

#[test]
fn redis_redisson() {
    smoke("redis-redisson");
}

#[test]
fn redis_sentinel() {
    smoke_for("redis-sentinel", 2 * ROUND, OF_CLUSTER);
}

#[test]
fn redis_cluster() {
    smoke_for("redis-cluster", 2 * ROUND, OF_CLUSTER);
}

#[test]
fn redlock() {
    smoke_for("redlock", 2 * ROUND, OF_CLUSTER);
}

#[test]
fn file() {
    smoke("file");
}

#[test]
fn memory() {
    smoke("memory");
}

#[test]
fn etcd() {
    smoke_for("etcd", 3 * ROUND / 2, OF_SERVER);
}

#[test]
fn etcd_cluster() {
    smoke_for("etcd-cluster", 3 * ROUND / 2, OF_CLUSTER);
}

#[test]
fn zookeeper() {
    smoke_for("zookeeper", 3 * ROUND / 2, OF_SERVER);
}

#[test]
fn zookeeper_ensemble() {
    smoke_for("zookeeper-ensemble", 2 * ROUND, OF_CLUSTER);
}

#[test]
fn postgres() {
    smoke_for("postgres", ROUND, OF_SERVER);
}

#[test]
fn postgres_session() {
    smoke_for("postgres-session", 3 * ROUND / 2, OF_SERVER);
}

#[test]
fn postgres_row() {
    smoke_for("postgres-row", ROUND, OF_FILE);
}

#[test]
fn postgres_shedlock() {
    smoke_for("postgres-shedlock", ROUND, OF_FILE);
}

#[test]
fn mariadb_session() {
    smoke_for("mariadb-session", 3 * ROUND / 2, OF_FILE);
}

#[test]
fn mariadb_row() {
    smoke_for("mariadb-row", ROUND, OF_FILE);
}

#[test]
fn mariadb_insert() {
    smoke_for("mariadb-insert", 3 * ROUND / 2, OF_FILE);
}

#[test]
fn mariadb() {
    smoke_for("mariadb", ROUND, OF_FILE);
}

#[test]
fn sqlite() {
    smoke_for("sqlite", ROUND, OF_FILE);
}

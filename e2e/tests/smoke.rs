//! Each engine under faults for longer than in `fault_run.rs`, from a fixed seed and from one that nobody chose.

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

/// What a smoke run must come to, at the least.
const OPERATIONS: u64 = 20_000;
const FAULTS: u64 = 200;
/// Rounds go on until it has; after this many it never will.
const MAX_ROUNDS: u64 = 12;
/// What takes part in an election takes longer, in fewer and longer storms.
const OF_CLUSTER: u64 = 8;
/// Where the disk is waited for.
const OF_SERVER: u64 = 4;
/// Where one that is stopped while it writes stops others.
const OF_FILE: u64 = 8;
/// How long each is: two storms and what is between them, at the pace of the engine.
const ROUND: Duration = Duration::from_secs(20);

fn smoke(engine: &str) {
    smoke_for(engine, ROUND, 2);
}

/// One storm at a time: what its processes take from each other is time in which nothing is judged.
static ALONE: Mutex<()> = Mutex::new(());

fn smoke_for(engine: &str, time: Duration, part: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let random = Rng::random_seed();
    let mut sum = Figures::default();
    let mut seeds = [1, random].into_iter().chain(random + 1..).take(MAX_ROUNDS as usize);
    while sum.operations < OPERATIONS / part || sum.all_faults() < FAULTS / part || sum.rounds < 2 {
        let seed = seeds.next().unwrap_or_else(|| panic!("too little happens:\n{sum}"));
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
fn mariadb() {
    smoke_for("mariadb", ROUND, OF_FILE);
}

#[test]
fn sqlite() {
    smoke_for("sqlite", ROUND, OF_FILE);
}

//! A short storm on two engines, selected by the date. The nightly tests in `smoke.rs` run longer storms on all
//! engines.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, time::UNIX_EPOCH};

use leasehold_e2e::{
    fault_run::one_storm_duration,
    figures::Figures,
    rng::Rng,
    round::{Outcome, Round},
    speed::EngineSpeed,
};

/// The engines of a day are neighbours in this list: one with slow rounds, and one with fast rounds.
const ENGINES: [&str; 20] = [
    "redis-sentinel",
    "redis",
    "zookeeper-ensemble",
    "redis-cluster",
    "file",
    "etcd-cluster",
    "sqlite",
    "etcd",
    "postgres",
    "zookeeper",
    "memory",
    "mariadb",
    "redlock",
    "redis-redisson",
    "postgres-session",
    "mariadb-insert",
    "mariadb-session",
    "postgres-row",
    "postgres-shedlock",
    "mariadb-row",
];
/// The number of engines of a day.
const OF_A_DAY: u64 = 2;
/// Environment variables: the engines to use instead, separated by commas, and the seed.
const CHOICE: &str = "LEASEHOLD_STORM";
const SEED: &str = "LEASEHOLD_SEED";
/// The least figures of an engine, so that the test shows something; also, there must be some of every operation. One
/// storm is enough, unless the machine is busy.
const GRANTS: u64 = 200;
const FAULTS: u64 = 20;
/// The test fails if so many storms do not reach these figures.
const MAX_FAULT_RUNS: u64 = 8;

#[test]
fn two_engines_keep_their_promises_in_a_fault_run() {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(Rng::random_seed);
    let engines = std::env::var(CHOICE).unwrap_or_else(|_| of_day(today()).join(","));
    println!("repeat with {CHOICE}={engines} {SEED}={seed} cargo test -p leasehold-e2e --test fault_run");
    for engine in engines.split(',') {
        let mut sum = Figures::default();
        let mut seeds = seed..seed + MAX_FAULT_RUNS;
        while sum.grants < GRANTS || sum.all_faults() < FAULTS || !sum.missing().is_empty() {
            let too_little = || panic!("{engine}: too little happens, missing: {:?}\n{sum}", sum.missing());
            let seed = seeds.next().unwrap_or_else(too_little);
            sum.add(&fault_run(engine, seed));
        }
        println!("{sum}");
    }
}

fn fault_run(engine: &str, seed: u64) -> Figures {
    let time = one_storm_duration(&EngineSpeed::of(engine));
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold-e2e"));
    let Outcome { figures, complaints, .. } = Round { engine, seed, time, program }.run(|_| ()).unwrap();
    assert!(figures.holds(), "{engine}, seed {seed}:\n{figures}\n{}", complaints.join("\n"));
    figures
}

#[test]
fn each_engine_is_drawn_once_within_ten_days() {
    let mut drawn: Vec<_> = (0..10).flat_map(|day| of_day(20_000 + day)).collect();
    drawn.sort_unstable();
    let mut engines = ENGINES;
    engines.sort_unstable();
    assert_eq!(drawn, engines);
}

/// The days since 1970, in UTC.
fn today() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400
}

fn of_day(day: u64) -> [&'static str; OF_A_DAY as usize] {
    let first = (day * OF_A_DAY) as usize % ENGINES.len();
    [ENGINES[first], ENGINES[first + 1]]
}

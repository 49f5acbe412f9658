//! The parts of a night, in order. First come parts that would fail soon after their begin; last come parts that need a
//! quiet machine.

use std::{collections::BTreeMap, time::Duration};

use super::{bench, cargo_fuzz, circle::Circle, fault_runs, fuzz, night::Night, servers, simulation};
use crate::{
    book, check, deb, mutants,
    run::{Failure, Steps},
    setup,
    side_by_side::Job,
    static_program, test,
};

/// A part of a night.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// The share of the night, in percent. The work of a part ends when its share is over, except in `book`, `deb`,
    /// `static`, `fenced` and `peers`.
    pub(super) share: f64,
    /// Why the part gets this share.
    pub(super) why: &'static str,
    pub(super) work: Work,
}

/// The work of a part.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The test programs of the last tier, and the tests of the peers: as many as fit into the share.
    Tests,
    /// The lints of each package with each feature alone, and of the peers: as many as fit into the share.
    Lints,
    /// Storms on an engine, for the whole share.
    Storm(&'static str),
    /// Storms on an engine whose server has to be unpacked first, which takes additional time.
    StormOn(&'static str, &'static servers::Release),
    /// Updates of one file by many processes, with a fence and without.
    Fenced,
    /// Random bytes for parsers, for the whole share.
    Fuzz,
    /// Random bytes for parsers by cargo-fuzz. Building its targets takes additional time.
    CargoFuzz,
    /// Seeds of the simulation that were never run, for the whole share.
    Simulation,
    /// Runs of the model: as many as fit into the share.
    Model,
    /// Seeded bugs: as many as fit into the share.
    Mutants,
    /// Storms on other lock crates.
    Peers,
    /// A group of benches: as many as fit into the share.
    Bench(&'static str, &'static [&'static str]),
    /// Older and newer servers: as many as fit into the share.
    Servers,
    /// The documentation as a book, with its links checked.
    Book,
    /// The Debian package, installed into an empty root and used there.
    Deb,
    /// The static program, used in an empty root.
    Static,
}

/// The reason for the share of a storm: all engines have the same share.
const SAME_SHARE: &str = "as long as every engine";
/// The reason for the share of a shorter storm.
const HALF_SHARE: &str = "half as long: the same scripts as redis, or no server that could fail";

/// The reason for the share of a storm on another mode of an engine.
const MODE_SHARE: &str = "up to half as long: a mode of a server with a storm of its own";

/// All parts, in the order of a night.
pub(super) const PARTS: [Part; 43] = [
    part("book", 0.5, "a fixed amount: half a minute, and some minutes when mdbook is built", Work::Book),
    part("deb", 0.5, "a fixed amount: the release build, and minutes when cargo-deb is built", Work::Deb),
    part("static", 0.5, "a fixed amount: a release build with another C library", Work::Static),
    part("lints", 4.5, "all in eight hours: about eighty runs of clippy", Work::Lints),
    part("tests", 6.0, "all in eight hours: two storms on every engine, the tests of the peers", Work::Tests),
    part("fenced", 0.5, "a fixed amount: the minute of docs/proof.md", Work::Fenced),
    part("fuzz", 3.0, "a minute for each of fourteen parsers", Work::Fuzz),
    part(
        "cargo-fuzz",
        3.0,
        "a minute for each of thirteen, from where the last night ended",
        Work::CargoFuzz,
    ),
    part("model", 1.5, "all in eight hours: the worlds within the large bounds", Work::Model),
    part("simulation", 7.0, "two million seeds: it finds most for its time", Work::Simulation),
    part("storm on redis", 3.0, "several minutes for each of its three configurations", Work::Storm("redis")),
    part("storm on redis-redisson", 2.0, HALF_SHARE, Work::Storm("redis-redisson")),
    part("storm on etcd", 3.0, SAME_SHARE, Work::Storm("etcd")),
    part("storm on redis-sentinel", 2.0, HALF_SHARE, Work::Storm("redis-sentinel")),
    part("storm on redis-cluster", 2.0, HALF_SHARE, Work::Storm("redis-cluster")),
    part("storm on redlock", 2.0, HALF_SHARE, Work::Storm("redlock")),
    part("storm on etcd-cluster", 3.0, SAME_SHARE, Work::Storm("etcd-cluster")),
    part("storm on zookeeper", 3.0, SAME_SHARE, Work::Storm("zookeeper")),
    part("storm on zookeeper-ensemble", 3.0, SAME_SHARE, Work::Storm("zookeeper-ensemble")),
    part("storm on postgres", 3.0, SAME_SHARE, Work::Storm("postgres")),
    part("storm on postgres-session", 1.5, MODE_SHARE, Work::Storm("postgres-session")),
    part("storm on postgres-row", 1.0, MODE_SHARE, Work::Storm("postgres-row")),
    part("storm on postgres-shedlock", 1.0, MODE_SHARE, Work::Storm("postgres-shedlock")),
    part("storm on mariadb", 3.0, SAME_SHARE, Work::Storm("mariadb")),
    part("storm on mariadb-session", 1.5, MODE_SHARE, Work::Storm("mariadb-session")),
    part("storm on mariadb-row", 1.0, MODE_SHARE, Work::Storm("mariadb-row")),
    part("storm on mariadb-insert", 1.0, MODE_SHARE, Work::Storm("mariadb-insert")),
    part(
        "storm on mysql",
        2.0,
        "two thirds of MariaDB's: the engine is the same",
        Work::StormOn("mysql", &servers::OTHER_BRAND),
    ),
    part("storm on mysql-session", 1.0, MODE_SHARE, Work::StormOn("mysql-session", &servers::OTHER_BRAND)),
    part("storm on sqlite", 2.0, HALF_SHARE, Work::Storm("sqlite")),
    part("storm on file", 3.0, SAME_SHARE, Work::Storm("file")),
    part("storm on memory", 2.0, HALF_SHARE, Work::Storm("memory")),
    part("peers", 1.5, "two rounds of each, as in docs/proof.md; one in a short night", Work::Peers),
    part(
        "servers",
        4.0,
        "a third of them, about a minute each, and four for all tests on MySQL, Valkey and the newest Redis",
        Work::Servers,
    ),
    part("mutants", 10.0, "fifty minutes: about a third of them, the others the next nights", Work::Mutants),
    part("benches", 1.5, "all in eight hours, as the other benches", Work::Bench("", bench::LOCAL)),
    part("benches of redis", 1.0, "five minutes of holds among them", Work::Bench("Redis", bench::REDIS)),
    part(
        "benches of groups of redis",
        1.0,
        "a minute and a half of holds among them",
        Work::Bench("", bench::REDIS_GROUPS),
    ),
    part("benches of etcd", 1.5, "as redis", Work::Bench("etcd", bench::ETCD)),
    part("benches of zookeeper", 1.5, "as redis", Work::Bench("ZooKeeper", bench::ZOOKEEPER)),
    part("benches of postgres", 1.5, "as redis", Work::Bench("PostgreSQL", bench::POSTGRES)),
    part("benches of mysql and sqlite", 1.5, "as redis", Work::Bench("MariaDB, SQLite", bench::OTHERS)),
    part(
        "bench of the build",
        2.0,
        "it builds the command from scratch each time",
        Work::Bench("Build", bench::BUILD),
    ),
];

const fn part(name: &'static str, share: f64, why: &'static str, work: Work) -> Part {
    Part { name, share, why, work }
}

/// The number of mutants in a batch. For each batch, its killers are built and run once without a mutant.
const MUTANTS_PER_BATCH: usize = 6;
/// The shortest time in which two rounds of each peer can run.
const MIN_TIME_FOR_TWO_ROUNDS: Duration = Duration::from_secs(300);

impl Part {
    /// Does the work. Work that is bounded by its share of the time ends soon after the share is over.
    pub(super) fn run(&self, steps: &mut Steps, night: &Night<'_>, share: Duration) -> Result<(), Failure> {
        let workspace = night.workspace;
        match self.work {
            Work::Tests => {
                let jobs = test::nightly_jobs(steps, workspace)?;
                self.run_jobs(night, share, jobs, |job| test::run_one(workspace, job))
            }
            Work::Lints => {
                setup::for_checks(steps, workspace)?;
                self.run_jobs(night, share, check::nightly_jobs(workspace), |mut job| {
                    steps.command(&job.name, &mut job.command)
                })
            }
            Work::Servers => {
                let suites = test::build_suites(steps, workspace)?;
                let names = servers::RELEASES.map(|release| release.name.to_owned());
                let circle = Circle { part: self.name, pieces: &names, batch: 1 };
                circle.run(night, share, |batch| {
                    let chosen = servers::RELEASES.iter().filter(|release| batch.contains(&release.name));
                    chosen.into_iter().try_for_each(|release| servers::run(steps, night, &suites, release))
                })
            }
            Work::Mutants => {
                let names = mutants::names(workspace).map_err(|reason| Failure::new(self.name, reason))?;
                let circle = Circle { part: self.name, pieces: &names, batch: MUTANTS_PER_BATCH };
                circle.run(night, share, |batch| mutants::run(steps, workspace, batch))
            }
            Work::Bench(heading, benches) => {
                steps.step(&format!("build for benches, {heading}"), || bench::build(night, benches))?;
                let names: Vec<String> = benches.iter().map(|&bench| bench.to_owned()).collect();
                let circle = Circle { part: self.name, pieces: &names, batch: 1 };
                circle.run(night, share, |batch| {
                    batch.iter().try_for_each(|bench| {
                        steps.step(&format!("bench {bench}"), || bench::run(night, bench))
                    })
                })
            }
            Work::Storm(engine) => steps.step(self.name, || fault_runs::run(night, engine, share, None)),
            Work::StormOn(engine, release) => {
                servers::with_unpacked(steps, night, release, |steps, system| {
                    steps.step(self.name, || fault_runs::run(night, engine, share, Some(system)))
                })
            }
            Work::Simulation => steps.step(self.name, || simulation::run(night, share)),
            Work::Fenced => steps.step(self.name, || fenced(night)),
            Work::Book => book::build(steps, workspace),
            Work::Deb => deb::build_and_try(steps, workspace),
            Work::Static => static_program::build_and_try(steps, workspace),
            Work::CargoFuzz => cargo_fuzz::run(steps, night, share),
            Work::Fuzz => steps.step(self.name, || fuzz::run(night, share)),
            Work::Model => {
                let names = steps.step("list the runs of the model", || runs_of_the_model(night))?;
                let circle = Circle { part: self.name, pieces: &names, batch: 1 };
                circle.run(night, share, |batch| {
                    let mut model = night.program("leasehold-model");
                    let name = format!("model, {}", batch.join(", "));
                    steps.step(&name, || night.run_logged("model", model.args(batch)))
                })
            }
            Work::Peers => steps.step(self.name, || peers(night, share)),
        }
    }

    /// Runs jobs until the time is over.
    fn run_jobs<E: ToString>(
        &self,
        night: &Night<'_>,
        share: Duration,
        jobs: Vec<Job>,
        mut run: impl FnMut(Job) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
        let mut jobs: BTreeMap<String, Job> = names.iter().cloned().zip(jobs).collect();
        let circle = Circle { part: self.name, pieces: &names, batch: 1 };
        circle.run(night, share, |batch| {
            batch.iter().filter_map(|&name| jobs.remove(name)).try_for_each(&mut run)
        })
    }
}

/// The names of all runs of the model.
fn runs_of_the_model(night: &Night<'_>) -> Result<Vec<String>, String> {
    let listed = night.program("leasehold-model").arg("--list").output();
    let listed = listed.map_err(|error| format!("the model cannot be run: {error}"))?;
    let names: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    if names.is_empty() { Err("the model has no runs".to_owned()) } else { Ok(names) }
}

/// Measures lost updates for a minute.
fn fenced(night: &Night<'_>) -> Result<(), String> {
    let mut fenced = night.program("leasehold-e2e");
    night.run_logged("fenced", fenced.args(["fenced", "--seconds", "60"]).args(night.seed_arguments()))
}

/// Runs storms on other lock crates.
fn peers(night: &Night<'_>, share: Duration) -> Result<(), String> {
    let mut peers = night.workspace.cargo_of_peers("run");
    let rounds = if share < MIN_TIME_FOR_TWO_ROUNDS { "1" } else { "2" };
    peers.args(["--release", "--locked", "--", "--rounds", rounds, "--seed", "1"]);
    night.run_logged("peers", &mut peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_to_a_night() {
        let sum: f64 = PARTS.iter().map(|part| part.share).sum();
        assert!((sum - 100.0).abs() < 0.01, "{sum}");
    }

    #[test]
    fn the_names_of_parts_are_unique() {
        let mut names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
    }
}

//! The parts of a night, in their order: first what is quick to fail, last what needs a quiet machine.

use std::time::Duration;

use super::{bench, mutants, night::Night, simulation, storms};
use crate::{
    check,
    run::{Failure, Steps},
    test,
};

/// A part of a night.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// How many hundredths of the night. What does a fixed amount of work is not cut: this is what it takes of eight hours on
    /// two processors.
    pub(super) share: f64,
    /// Why it is worth that.
    pub(super) why: &'static str,
    pub(super) work: Work,
}

/// What a part does.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// The test programs of the last tier, and the tests of the peers.
    Tests,
    /// The lints of each package with each feature alone, and of the peers.
    Lints,
    /// Storms on an engine, for its share.
    Storm(&'static str),
    Fenced,
    /// Seeds that were never run, for its share.
    Simulation,
    Model,
    /// As many as fit into its share.
    Mutants,
    Peers,
    /// A group of benches.
    Bench(&'static str, &'static [&'static str]),
}

const ALIKE: &str = "as long as every engine";

/// The table of shares.
pub(super) const PARTS: [Part; 24] = [
    part("lints", 6.0, "a fixed amount: about eighty runs of clippy", Work::Lints),
    part("tests", 6.0, "a fixed amount: two storms on every engine, the tests of the peers", Work::Tests),
    part("fenced", 0.5, "a fixed amount: the minute of docs/proof.md", Work::Fenced),
    part("model", 1.5, "a fixed amount: all worlds within the large bounds", Work::Model),
    part("simulation", 8.0, "two million seeds: it finds most for its time", Work::Simulation),
    part("storm on redis", 4.0, "several minutes for each of its three configurations", Work::Storm("redis")),
    part("storm on etcd", 4.0, ALIKE, Work::Storm("etcd")),
    part("storm on etcd-cluster", 4.0, ALIKE, Work::Storm("etcd-cluster")),
    part("storm on zookeeper", 4.0, ALIKE, Work::Storm("zookeeper")),
    part("storm on zookeeper-ensemble", 4.0, ALIKE, Work::Storm("zookeeper-ensemble")),
    part("storm on postgres", 4.0, ALIKE, Work::Storm("postgres")),
    part("storm on mariadb", 4.0, ALIKE, Work::Storm("mariadb")),
    part("storm on sqlite", 4.0, ALIKE, Work::Storm("sqlite")),
    part("storm on file", 4.0, ALIKE, Work::Storm("file")),
    part("storm on memory", 4.0, ALIKE, Work::Storm("memory")),
    part("peers", 1.5, "a fixed amount: the two rounds of each in docs/proof.md", Work::Peers),
    part("mutants", 24.0, "two hours: about half of them, the other half the next night", Work::Mutants),
    part("benches", 1.5, "a fixed amount, as all benches", Work::Bench("", bench::LOCAL)),
    part("benches of redis", 2.0, "five minutes of holds among them", Work::Bench("Redis", bench::REDIS)),
    part("benches of etcd", 1.5, "as redis", Work::Bench("etcd", bench::ETCD)),
    part("benches of zookeeper", 1.5, "as redis", Work::Bench("ZooKeeper", bench::ZOOKEEPER)),
    part("benches of postgres", 1.5, "as redis", Work::Bench("PostgreSQL", bench::POSTGRES)),
    part("benches of mysql and sqlite", 1.5, "as redis", Work::Bench("MariaDB, SQLite", bench::OTHERS)),
    part(
        "bench of the build",
        3.0,
        "it builds the command anew each time",
        Work::Bench("Build", bench::BUILD),
    ),
];

const fn part(name: &'static str, share: f64, why: &'static str, work: Work) -> Part {
    Part { name, share, why, work }
}

impl Work {
    /// Does it. What has a share of the time ends soon after it.
    pub(super) fn run(self, steps: &mut Steps, night: &Night<'_>, share: Duration) -> Result<(), Failure> {
        match self {
            Self::Tests => test::nightly(steps, night.workspace),
            Self::Lints => check::nightly(steps, night.workspace),
            Self::Mutants => mutants::run(steps, night, share),
            Self::Storm(engine) => {
                steps.step(&format!("storm on {engine}"), || storms::run(night, engine, share))
            }
            Self::Simulation => steps.step("simulation", || simulation::run(night, share)),
            Self::Bench(heading, benches) => {
                steps.step(&format!("benches, {heading}"), || bench::run(night, benches))
            }
            Self::Fenced => steps.step("fenced", || {
                let mut fenced = night.program("leasehold-e2e");
                night.tell("fenced", fenced.args(["fenced", "--seconds", "60"]).args(night.seed()))
            }),
            Self::Model => steps.step("model", || night.tell("model", &mut night.program("leasehold-model"))),
            Self::Peers => steps.step("peers", || {
                let mut peers = night.workspace.peers("run");
                peers.args(["--release", "--locked", "--", "--rounds", "2", "--seed", "1"]);
                night.tell("peers", &mut peers)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_a_whole_night() {
        let sum: f64 = PARTS.iter().map(|part| part.share).sum();
        assert!((sum - 100.0).abs() < 0.01, "{sum}");
    }

    #[test]
    fn no_two_parts_have_one_name() {
        let mut names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
    }
}

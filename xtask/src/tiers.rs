//! The three tiers of tests, and the tier of each test program.
//!
//! A tier includes the tiers before it. `cargo xtask check` fails if a test program is not in the table, so that no
//! test is forgotten; and if a row of the table names no test program.

use std::fmt;

use crate::suites::{Kind, Suite};

/// A tier. It says how often its tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// After each save: `cargo xtask quick`.
    Quick,
    /// Before a change lands: `./test`.
    Test,
    /// Each night: `cargo xtask nightly`.
    Nightly,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quick => "quick",
            Self::Test => "test",
            Self::Nightly => "nightly",
        })
    }
}

/// A test program and its tier.
pub(crate) struct Row {
    /// The name of the package, without `leasehold-`.
    package: &'static str,
    /// The file or folder in `tests/`.
    target: &'static str,
    pub(crate) tier: Tier,
    why: &'static str,
}

/// The integration tests. They are started in this order, the longest first. All unit tests are in the quick tier.
const TABLE: [Row; 40] = [
    row("testkit", "it", Tier::Test, "the checker's own histories, the decorators, the servers"),
    row("zookeeper", "zookeeper", Tier::Test, "conformance, oracle and faults of ZooKeeper"),
    row("etcd", "etcd", Tier::Test, "conformance, oracle and faults of etcd"),
    row("examples", "scenarios", Tier::Test, "the examples of docs/examples.md"),
    row("redis", "redis", Tier::Test, "conformance, oracle and faults of Redis"),
    row("sql", "postgres", Tier::Test, "conformance, oracle and faults of PostgreSQL"),
    row(
        "cli",
        "cli",
        Tier::Test,
        "the command on every engine; the commands of the recipes, as their pages have them",
    ),
    row("sql", "mysql", Tier::Test, "conformance, oracle and faults of MariaDB"),
    row(
        "python",
        "pytest",
        Tier::Test,
        "the Python module, from its wheel, on Redis, etcd, PostgreSQL and files",
    ),
    row("serve", "browser", Tier::Test, "the page for operators in Chromium, by clicks"),
    row("e2e", "fault_cases", Tier::Test, "each row of the fault matrix once, on real servers"),
    row("sql", "sqlite", Tier::Test, "conformance, oracle and faults of SQLite"),
    row("sql", "row_hold", Tier::Test, "rows of other programs, held on PostgreSQL and MariaDB"),
    row("sql", "row_lock", Tier::Test, "row locks and fences by way of the client libraries"),
    row("e2e", "fault_run", Tier::Test, "a short storm on two engines, drawn by the date"),
    row("core", "locks", Tier::Quick, "waiting, renewal, loss and hand-over on the memory and file engines"),
    row("e2e", "fenced", Tier::Test, "lost updates with and without a fence"),
    row("sim", "sim", Tier::Test, "300 seeds of the simulation"),
    row("model", "model", Tier::Test, "the model of the Redis protocol at its small bounds"),
    row("model", "redlock", Tier::Test, "the model of Redlock"),
    row("model", "block", Tier::Test, "the model of blocks of tokens on etcd and ZooKeeper"),
    row("serve", "serve", Tier::Test, "the page for operators, by its socket"),
    row("cli", "crowd", Tier::Test, "many commands at once"),
    row("core", "memory_footprint", Tier::Test, "bytes for each hold"),
    row("leasehold", "kit", Tier::Quick, "the kit for the tests of programs"),
    row(
        "leasehold",
        "elections_and_once",
        Tier::Quick,
        "elections and work that is done one time, on files and SQLite",
    ),
    row("leasehold", "metrics", Tier::Test, "the series of the feature metrics"),
    row("leasehold", "features", Tier::Quick, "the features that are compiled in"),
    row("leasehold", "hosted", Tier::Quick, "the URLs of hosted databases that the pages show"),
    row("leasehold", "silent", Tier::Quick, "servers that accept connections and never answer"),
    row("leasehold", "tls", Tier::Test, "encrypted connections through the public crate"),
    row(
        "leasehold",
        "password",
        Tier::Test,
        "passwords that change while locks are in use, on every engine that has them",
    ),
    row(
        "leasehold",
        "credentials",
        Tier::Test,
        "users and passwords that a function gives anew for each connection",
    ),
    row(
        "leasehold",
        "settings",
        Tier::Test,
        "locks on the servers of the clients and pools that a program has",
    ),
    row("leasehold", "row_lock_sqlite", Tier::Test, "row locks and fences by way of sqlx on SQLite"),
    row("leasehold", "zookeeper", Tier::Test, "ZooKeeper through the public crate"),
    row("", "unit tests", Tier::Quick, "the unit tests of every package"),
    row("", "doc tests", Tier::Test, "the examples in the documentation"),
    row("e2e", "smoke", Tier::Nightly, "longer storms on every engine, one after another"),
    row(
        "e2e",
        "neighbours",
        Tier::Nightly,
        "beside programs that lock with packages of PyPI, npm, Maven and Go",
    ),
];

const fn row(package: &'static str, target: &'static str, tier: Tier, why: &'static str) -> Row {
    Row { package, target, tier, why }
}

impl Row {
    fn is_of(&self, suite: &Suite) -> bool {
        match suite.kind {
            Kind::Unit => self.target == "unit tests",
            Kind::Integration | Kind::Python => {
                let package = suite.package.strip_prefix("leasehold-").unwrap_or(&suite.package);
                self.package == package && self.target == suite.target
            }
        }
    }

    /// The row as a line of the table in CONTRIBUTING.md.
    fn markdown(&self) -> String {
        let name = match self.package {
            "" => self.target.to_owned(),
            "python" => "`cargo xtask python`".to_owned(),
            package => format!("`{package} --test {}`", self.target),
        };
        format!("| {name} | {} | {} |", self.tier, self.why)
    }
}

/// The tier of a test program. `None`: the table does not have it.
pub(crate) fn tier_of(suite: &Suite) -> Option<Tier> {
    TABLE.iter().find(|row| row.is_of(suite)).map(|row| row.tier)
}

/// Sorts test programs, so that the longest are started first.
pub(crate) fn sort(suites: &mut [Suite]) {
    suites.sort_by_key(|suite| TABLE.iter().position(|row| row.is_of(suite)));
}

/// Complaints about test programs without a tier, about rows without a test program, and about rows that
/// CONTRIBUTING.md lacks.
pub(crate) fn complaints(suites: &[Suite], contributing: &str) -> Vec<String> {
    let without_tier = suites.iter().filter(|suite| tier_of(suite).is_none());
    let mut complaints: Vec<_> =
        without_tier.map(|suite| format!("xtask/src/tiers.rs: {suite} is in no tier: add a row")).collect();
    for row in &TABLE {
        if row.target != "doc tests" && !suites.iter().any(|suite| row.is_of(suite)) {
            complaints.push(format!(
                "xtask/src/tiers.rs: no test program is called {} {}",
                row.package, row.target
            ));
        }
        if !contributing.lines().any(|line| line == row.markdown()) {
            complaints.push(format!("CONTRIBUTING.md: the table of tiers lacks the line {}", row.markdown()));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(package: &str, target: &str, kind: Kind) -> Suite {
        Suite { package: package.into(), target: target.into(), kind, ..Suite::default() }
    }

    fn complete_table() -> (Vec<Suite>, String) {
        let suites = TABLE.iter().map(|row| match row.package {
            "" => suite("x", "x", Kind::Unit),
            "leasehold" => suite("leasehold", row.target, Kind::Integration),
            package => suite(&format!("leasehold-{package}"), row.target, Kind::Integration),
        });
        (suites.collect(), TABLE.iter().map(|row| row.markdown() + "\n").collect())
    }

    #[test]
    fn a_whole_table_has_no_complaint() {
        let (suites, contributing) = complete_table();
        assert_eq!(complaints(&suites, &contributing), [""; 0]);
    }

    #[test]
    fn a_test_program_in_no_tier_is_a_complaint() {
        let (mut suites, contributing) = complete_table();
        suites.push(suite("leasehold-core", "new", Kind::Integration));
        let found = complaints(&suites, &contributing);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("leasehold-core, new is in no tier"), "{found:?}");
    }

    #[test]
    fn a_row_without_a_test_program_is_a_complaint() {
        let (mut suites, contributing) = complete_table();
        suites.remove(0);
        assert!(complaints(&suites, &contributing)[0].contains("no test program is called testkit it"));
    }

    #[test]
    fn a_row_that_the_document_lacks_is_a_complaint() {
        let (suites, contributing) = complete_table();
        let stale = contributing.replacen("| test |", "| quick |", 1);
        assert!(complaints(&suites, &stale)[0].starts_with("CONTRIBUTING.md"));
    }
}

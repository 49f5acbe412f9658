//! Runs storms of faults on the engines, and prints the tables of their results.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use serde_json::Value;

use super::{
    markdown::{bold, grouped, table},
    night::Night,
    servers::SERVERS_VARIABLE,
};

/// Runs storms on an engine for this long; if a server of another system is given, on that server. Stores the figures,
/// and the record of each round with a violation.
pub(super) fn run(
    night: &Night<'_>,
    engine: &str,
    time: Duration,
    system: Option<&Path>,
) -> Result<(), String> {
    let mut fault_run = night.program("leasehold-e2e");
    fault_run.args([
        "torture",
        "--engine",
        engine,
        "--minutes",
        &format!("{:.2}", time.as_secs_f64() / 60.0),
    ]);
    fault_run.envs(system.map(|system| (SERVERS_VARIABLE, system)));
    fault_run.args(night.seed_arguments()).arg("--keep").arg(night.dir().join("torture"));
    night.run_logged(&format!("storm-{engine}"), &mut fault_run)
}

/// The tables of docs/proof.md. Each has a list of engines and a list of rows.
const TABLES: [(&[&str], &[Row]); 5] = [
    (
        &["redis", "redis-redisson", "file", "memory"],
        &[
            MINUTES, OPERATIONS, CHECKS, FAULTS, GRANTS, HAND_OVERS, SLOWEST, WAIT, APPENDS, OVERLAPS,
            STALLED, VIOLATIONS,
        ],
    ),
    (
        &["redis-sentinel", "redis-cluster", "redlock"],
        &[
            ROUNDS,
            OPERATIONS,
            FAULTS,
            GRANTS_AND_HAND_OVERS,
            LOST,
            WAIT,
            APPENDS,
            OVERLAPS,
            STALLED,
            VIOLATIONS,
        ],
    ),
    (
        &["etcd", "etcd-cluster", "zookeeper", "zookeeper-ensemble"],
        &[
            ROUNDS,
            OPERATIONS,
            FAULTS,
            GRANTS_AND_HAND_OVERS,
            LOST,
            WAIT,
            APPENDS,
            OVERLAPS,
            STALLED,
            VIOLATIONS,
        ],
    ),
    (
        &["postgres", "mariadb", "mysql", "sqlite"],
        &[ROUNDS, OPERATIONS, FAULTS, GRANTS_AND_HAND_OVERS, LOST, WAIT, APPENDS, STALLED, VIOLATIONS],
    ),
    (
        &[
            "postgres-session",
            "mariadb-session",
            "mysql-session",
            "postgres-row",
            "mariadb-row",
            "postgres-shedlock",
            "mariadb-insert",
        ],
        &[
            ROUNDS,
            OPERATIONS,
            FAULTS,
            GRANTS_AND_HAND_OVERS,
            LOST,
            WAIT,
            APPENDS,
            OVERLAPS,
            STALLED,
            VIOLATIONS,
        ],
    ),
];

/// The title of a row, and the function that returns its text for an engine.
type Row = (&'static str, fn(&EngineRounds) -> String);

const MINUTES: Row = ("minutes of storm", |rounds| format!("{:.1}", rounds.seconds("seconds") / 60.0));
const ROUNDS: Row = ("minutes of storm, rounds", |rounds| {
    format!("{:.1}, {}", rounds.seconds("seconds") / 60.0, rounds.count("rounds"))
});
const OPERATIONS: Row = ("operations checked", |rounds| grouped(rounds.count("operations")));
const CHECKS: Row = ("answers of `check()`", |rounds| grouped(rounds.count("checks")));
const FAULTS: Row = ("faults", |rounds| {
    format!("{}, of {} kinds", grouped(rounds.sum_over_kinds("faults")), rounds.number_of_kinds("faults"))
});
const GRANTS: Row = ("grants", |rounds| grouped(rounds.count("grants")));
const HAND_OVERS: Row = ("hand-overs to a waiter", |rounds| grouped(rounds.count("hand_overs")));
const GRANTS_AND_HAND_OVERS: Row = ("grants; hand-overs to a waiter", |rounds| {
    format!("{}; {}", grouped(rounds.count("grants")), grouped(rounds.count("hand_overs")))
});
const LOST: Row = ("holds reported lost", |rounds| grouped(rounds.count("lost")));
const SLOWEST: Row = ("the slowest of a hundred hand-overs, in the worst round", |rounds| {
    format!("{} ms", grouped(rounds.largest("hand_over_p99") / 1000))
});
const WAIT: Row =
    ("longest wait", |rounds| format!("{:.1} s", rounds.largest("longest_wait") as f64 / 1000.0));
const APPENDS: Row = ("appends to fenced files, lost", |rounds| {
    format!("{}, {}", grouped(rounds.count("appends")), bold(&grouped(rounds.count("appends_lost"))))
});
const OVERLAPS: Row = ("overlaps on servers that promise no exclusion", |rounds| {
    grouped(rounds.count("overlaps_not_promised"))
});
const STALLED: Row =
    ("seconds in which the machine did not serve", |rounds| format!("{:.0}", rounds.seconds("stalled")));
const VIOLATIONS: Row = ("**violations, undecided**", |rounds| {
    bold(&format!("{}, {}", grouped(rounds.sum_over_kinds("violations")), grouped(rounds.count("undecided"))))
});

/// The results of all storms, as the tables of docs/proof.md.
pub(super) fn tables(night: &Night<'_>) -> String {
    let mut text = String::new();
    for (engines, rows) in TABLES {
        let all_rounds: Vec<EngineRounds> =
            engines.iter().map(|engine| EngineRounds::of(night, engine)).collect();
        let titles: Vec<&str> = std::iter::once("").chain(engines.iter().copied()).collect();
        let rows = rows.iter().map(|(name, cell)| -> Vec<String> {
            let cell =
                |rounds: &EngineRounds| if rounds.0.is_empty() { "–".to_owned() } else { cell(rounds) };
            std::iter::once((*name).to_owned()).chain(all_rounds.iter().map(cell)).collect()
        });
        text += &table(&titles, rows);
        text.push('\n');
    }
    text
}

/// The rounds of an engine, as `leasehold-e2e` stores them: each is a line of JSON.
struct EngineRounds(Vec<Value>);

impl EngineRounds {
    fn of(night: &Night<'_>, engine: &str) -> Self {
        let stored = night.dir().join("torture").join(format!("{engine}.jsonl"));
        Self::read(&fs::read_to_string(stored).unwrap_or_default())
    }

    fn read(lines: &str) -> Self {
        // If the last line is incomplete, its run was interrupted, and the line is ignored.
        Self(lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The sum of a count over all rounds.
    fn count(&self, key: &str) -> u64 {
        self.0.iter().filter_map(|round| round[key].as_u64()).sum()
    }

    /// The largest value of a figure in any round.
    fn largest(&self, key: &str) -> u64 {
        self.0.iter().filter_map(|round| round[key].as_u64()).max().unwrap_or(0)
    }

    fn seconds(&self, key: &str) -> f64 {
        self.0.iter().filter_map(|round| round[key].as_f64()).sum()
    }

    /// The sum over all rounds and all kinds of a figure that is counted by kind.
    fn sum_over_kinds(&self, key: &str) -> u64 {
        let counts =
            self.0.iter().filter_map(|round| round[key].as_object()).flat_map(|kinds| kinds.values());
        counts.filter_map(Value::as_u64).sum()
    }

    /// The number of different kinds of a figure that is counted by kind.
    fn number_of_kinds(&self, key: &str) -> usize {
        let names = self.0.iter().filter_map(|round| round[key].as_object()).flat_map(|kinds| kinds.keys());
        names.collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_add_up() {
        let rounds = EngineRounds::read(
            "{\"rounds\":1,\"seconds\":60.0,\"longest_wait\":2500,\"faults\":{\"a\":1,\"b\":2},\"violations\":{}}\n\
             {\"rounds\":1,\"seconds\":30.0,\"longest_wait\":1500,\"faults\":{\"a\":1999},\"violations\":{\"I7\":1}}\n{\"ro",
        );
        let cell = |row: Row| row.1(&rounds);
        assert_eq!((cell(ROUNDS), cell(MINUTES)), ("1.5, 2".to_owned(), "1.5".to_owned()));
        assert_eq!((cell(WAIT), cell(FAULTS)), ("2.5 s".to_owned(), "2,002, of 2 kinds".to_owned()));
        assert_eq!(cell(VIOLATIONS), "**1, 0**");
    }
}

//! Runs the benches, in the groups of docs/benchmarks.md, and prints their tables. The goals for the figures are only
//! in the documentation.

use super::{
    markdown::{bold, table},
    night::Night,
    parts::{PARTS, Work},
};
use crate::run::succeed;

pub(super) const LOCAL: &[&str] = &["free", "contended", "handover", "election", "command", "holds"];
pub(super) const REDIS: &[&str] = &[
    "redis-free",
    "redis-handover",
    "redis-contended",
    "redis-crowd",
    "redis-names",
    "redis-languages",
    "python",
    "redis-holds",
];
pub(super) const REDIS_GROUPS: &[&str] =
    &["cluster-free", "cluster-holds", "cluster-move", "sentinel-failover", "redlock-free"];
pub(super) const ETCD: &[&str] =
    &["etcd-free", "etcd-handover", "etcd-contended", "etcd-waiters", "etcd-holds"];
pub(super) const ZOOKEEPER: &[&str] =
    &["zookeeper-free", "zookeeper-handover", "zookeeper-contended", "zookeeper-holds", "zookeeper-recipes"];
pub(super) const POSTGRES: &[&str] =
    &["postgres-free", "postgres-handover", "postgres-notify", "postgres-session", "row-lock"];
pub(super) const OTHERS: &[&str] =
    &["mysql-free", "mysql-waiters", "sqlite-free", "sqlite-handover", "engines"];
pub(super) const BUILD: &[&str] = &["build"];

/// Builds the programs that these benches measure: the command, whose start, size and build are measured too, and the
/// wheel of the Python module.
pub(super) fn build(night: &Night<'_>, benches: &[&str]) -> Result<(), String> {
    let mut command = night.workspace.cargo("build");
    succeed(command.args(["--quiet", "--release", "--locked", "-p", "leasehold-cli"]))?;
    if benches.contains(&"python") {
        succeed(night.workspace.cargo("xtask").args(["python", "wheel"]))?;
    }
    Ok(())
}

/// Runs this bench.
pub(super) fn run(night: &Night<'_>, bench: &str) -> Result<(), String> {
    let ended = night.run_logged(&log_name(bench), night.measured_program("leasehold-bench").arg(bench));
    ended.map_err(|reason| format!("{bench}: {reason}"))
}

/// The name of the log of a bench.
fn log_name(bench: &str) -> String {
    format!("bench-{bench}")
}

/// The figures of this night, under the same headings as in docs/benchmarks.md.
pub(super) fn page(night: &Night<'_>) -> String {
    let mut text = "# Figures of docs/benchmarks.md\n".to_owned();
    for part in &PARTS {
        let Work::Bench(heading, benches) = part.work else { continue };
        let logs: Vec<String> = benches.iter().map(|bench| night.log(&log_name(bench))).collect();
        let output = BenchOutput::read(&logs.concat());
        if !heading.is_empty() {
            text += &format!("\n## {heading}\n");
        }
        text += &format!("\n{}", table(&["what", "measured", "beside it, same run", "ratio"], output.rows));
        let notes: String = output.notes.iter().map(|note| format!("- {note}\n")).collect();
        text += &if notes.is_empty() { notes } else { format!("\n{notes}") };
    }
    text
}

/// The output of one or more benches.
#[derive(Default)]
struct BenchOutput {
    /// The rows of the table.
    rows: Vec<[String; 4]>,
    /// The lines that belong to no comparison.
    notes: Vec<String>,
}

impl BenchOutput {
    fn read(log: &str) -> Self {
        let (mut output, mut title, mut first_of_contest) = (Self::default(), String::new(), None);
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            if let Some((_, new_title)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) {
                new_title.clone_into(&mut title);
            } else if line.contains(" rounds; median, ratio") {
                first_of_contest = None;
            } else if let Some(measurement) = Measurement::read(line) {
                let Measurement { name, figure, range, ratio } = measurement;
                let row = match &first_of_contest {
                    Some(first) => {
                        [format!("{title}: {name}"), bold(&figure) + &range, String::clone(first), ratio]
                    }
                    None => [format!("{title}: {name}"), figure.clone() + &range, String::new(), ratio],
                };
                first_of_contest.get_or_insert(format!("{figure} {name}"));
                output.rows.push(row);
            } else {
                output.notes.push(format!("{title}: {}", line.trim()));
            }
        }
        output
    }
}

/// One measured program. The programs of a comparison are measured in turns.
struct Measurement {
    name: String,
    figure: String,
    range: String,
    ratio: String,
}

impl Measurement {
    /// Parses `  NAME  MEDIAN UNIT  RATIO x   (LEAST .. MOST)`.
    fn read(line: &str) -> Option<Self> {
        let (before, range) = line.strip_suffix(')')?.split_once(" x   (")?;
        let (before, ratio) = before.trim_end().rsplit_once(' ')?;
        let (least, most) = range.split_once(" .. ")?;
        let before = before.trim_end();
        // The figure is the last number that comes after several spaces. Names and units may contain numbers, but not
        // after several spaces.
        let (gap, _) = before
            .rmatch_indices("  ")
            .find(|(index, _)| before[index + 2..].starts_with(|first: char| first.is_ascii_digit()))?;
        let (name, figure) = before.split_at(gap);
        let figure: Vec<&str> = figure.split_whitespace().collect();
        Some(Self {
            name: name.trim().to_owned(),
            figure: figure.join(" "),
            range: format!(" ({least} to {most})"),
            ratio: ratio.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "
contended: hand-over within one process, 64 tasks on one name
  61 rounds; median, ratio of medians, best and worst
  tokio::sync::Mutex                             6,152,000 hand-overs/s     1.00 x   (5,000,000 .. 7,000,000)
  leasehold, memory                              1,429,000 hand-overs/s     0.23 x   (1,000,000 .. 1,500,000)
  the other process got 12 turns, after 0.07 ms (p50), 8.00 ms (p99)
";

    #[test]
    fn ways_and_notes_are_distinguished() {
        let output = BenchOutput::read(LOG);
        let what = "hand-over within one process, 64 tasks on one name: leasehold, memory";
        let measured = "**1,429,000 hand-overs/s** (1,000,000 to 1,500,000)";
        let beside = "6,152,000 hand-overs/s tokio::sync::Mutex";
        assert_eq!(output.rows.len(), 2);
        assert_eq!(output.rows[1], [what, measured, beside, "0.23"].map(str::to_owned));
        assert_eq!(output.notes.len(), 1);
        assert!(output.notes[0].ends_with("8.00 ms (p99)"), "{:?}", output.notes);
    }

    #[test]
    fn every_bench_of_the_documentation_is_in_a_group() {
        let page = include_str!("../../../docs/benchmarks.md");
        let named: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("cargo run --profile measure -p leasehold-bench -- "))
            .flat_map(|names| names.split(' '))
            .collect();
        let groups = [LOCAL, REDIS, REDIS_GROUPS, ETCD, ZOOKEEPER, POSTGRES, OTHERS, BUILD].concat();
        assert!(named.len() > 20, "{named:?}");
        for name in &named {
            assert!(groups.contains(name), "{name} is run by no part of the night");
        }
    }
}

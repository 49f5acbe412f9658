//! Prints the results of the mutants.

use std::{fmt, time::Duration};

use super::{
    child::{Ended, Run},
    patch::Mutant,
};

/// A mutant and its result.
pub(super) struct Kill<'a> {
    pub(super) mutant: &'a Mutant,
    /// The run of its killer; or why it could not be run.
    pub(super) outcome: Result<Run, String>,
}

impl Kill<'_> {
    /// Whether the killer found the bug.
    pub(super) fn is_killed(&self) -> bool {
        match &self.outcome {
            Ok(Run { ended: Ended::Itself(status), .. }) => !status.success(),
            Ok(Run { ended: Ended::Late, .. }) => self.mutant.may_hang,
            Err(_) => false,
        }
    }

    /// The test that found the bug, or a word that says why there is none.
    fn by(&self) -> String {
        match &self.outcome {
            Err(_) => "ERROR".to_owned(),
            Ok(_) if !self.is_killed() => "SURVIVED".to_owned(),
            Ok(run) => match failed_test(&run.output) {
                Some(test) => test.to_owned(),
                None => self.mutant.killer.to_string(),
            },
        }
    }

    /// How long the killer ran.
    fn seconds(&self) -> f64 {
        self.outcome.as_ref().map_or(0.0, |run| run.took.as_secs_f64())
    }
}

/// The line of a mutant in the table, with the first complaint of its killer.
impl fmt::Display for Kill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { name, killer, .. } = self.mutant;
        match &self.outcome {
            Err(error) => write!(f, "ERROR    {name}: {error}"),
            Ok(run) => {
                let word = if self.is_killed() { "killed  " } else { "SURVIVED" };
                write!(f, "{word} {name}: {:.1} s, `{killer}`: ", self.seconds())?;
                match (&run.ended, failed_test(&run.output)) {
                    (Ended::Late, _) => write!(f, "did not end within its budget"),
                    (_, Some(test)) => write!(f, "{test}: {}", complaint(&run.output)),
                    (_, None) => write!(f, "{}", complaint(&run.output)),
                }
            }
        }
    }
}

/// The table for the terminal.
pub(super) fn plain(kills: &[Kill<'_>]) -> String {
    let width = kills.iter().map(|kill| kill.mutant.name.len()).max().unwrap_or_default();
    let line =
        |kill: &Kill<'_>| format!("{:width$}  {:6.1} s  {}\n", kill.mutant.name, kill.seconds(), kill.by());
    let killed = kills.iter().filter(|kill| kill.is_killed()).count();
    let lines: String = kills.iter().map(line).collect();
    format!("{lines}{killed} of {} killed", kills.len())
}

/// The table as a page of the documentation.
pub(super) fn page(kills: &[Kill<'_>], took: Duration) -> String {
    let row = |kill: &Kill<'_>| {
        let Mutant { name, breaks, .. } = kill.mutant;
        format!(
            "| [{name}](../mutants/{name}.patch) | {breaks} | `{}` | {:.1} |\n",
            kill.by(),
            kill.seconds()
        )
    };
    let rows: String = kills.iter().map(row).collect();
    format!(
        "# Seeded bugs

Written by `cargo xtask mutants --write`: each bug was put into the code, and the suite failed. The last column has the
seconds of the failing test, without building. All bugs took {:.0} minutes.

| bug | what it breaks | killed by | s |
|---|---|---|---|
{rows}",
        (took.as_secs_f64() / 60.0).ceil()
    )
}

/// The first test that failed.
fn failed_test(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

/// The first line that says what is wrong: the line after a panic's location, or a seed of the simulation.
fn complaint(output: &str) -> &str {
    let mut lines = output.lines().map(str::trim);
    let panicked = lines.by_ref().any(|line| line.contains("panicked at "));
    if panicked && let Some(line) = lines.next() {
        return line;
    }
    let is_seed = |line: &&str| line.starts_with("seed ");
    output.lines().find(is_seed).or_else(|| output.lines().last()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_test_is_reported_with_its_reason() {
        let is_seed = "running 2 tests\ntest a::b ... FAILED\ntest c ... ok\n\n---- a::b stdout ----\n\n\
                    thread 'a::b' (7) panicked at x.rs:1:2:\nassertion failed: x\nnote: run\n";
        assert_eq!(failed_test(is_seed), Some("a::b"));
        assert_eq!(complaint(is_seed), "assertion failed: x");
        assert_eq!(complaint("seeds\nseed 4: I1: two\nend\n"), "seed 4: I1: two");
        assert_eq!((failed_test(""), complaint("")), (None, ""));
    }
}

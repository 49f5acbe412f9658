//! Prints the results of the mutants.

use std::{fmt, time::Duration};

use super::{
    child::{CommandResult, Ending},
    patch::Mutant,
};

/// A mutant and its result.
pub(super) struct MutantResult<'a> {
    pub(super) mutant: &'a Mutant,
    /// The run of its killer; or a text that says why the killer could not be run.
    pub(super) outcome: Result<CommandResult, String>,
}

impl MutantResult<'_> {
    /// Whether the killer found the bug.
    pub(super) fn is_killed(&self) -> bool {
        match &self.outcome {
            Ok(CommandResult { ended: Ending::ByItself(status), .. }) => !status.success(),
            Ok(CommandResult { ended: Ending::AtLimit, .. }) => self.mutant.may_hang,
            Err(_) => false,
        }
    }

    /// The name of the test that found the bug. If no test found it, a word that says why.
    fn killed_by(&self) -> String {
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

/// A line for a mutant in the table, with the first complaint of its killer.
impl fmt::Display for MutantResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { name, killer, .. } = self.mutant;
        match &self.outcome {
            Err(error) => write!(f, "ERROR    {name}: {error}"),
            Ok(run) => {
                let word = if self.is_killed() { "killed  " } else { "SURVIVED" };
                write!(f, "{word} {name}: {:.1} s, `{killer}`: ", self.seconds())?;
                match (&run.ended, failed_test(&run.output)) {
                    (Ending::AtLimit, _) => write!(f, "did not end within its budget"),
                    (_, Some(test)) => write!(f, "{test}: {}", failure_reason(&run.output)),
                    (_, None) => write!(f, "{}", failure_reason(&run.output)),
                }
            }
        }
    }
}

/// The table for the terminal.
pub(super) fn terminal_table(results: &[MutantResult<'_>]) -> String {
    let width = results.iter().map(|result| result.mutant.name.len()).max().unwrap_or_default();
    let line_of = |result: &MutantResult<'_>| {
        format!("{:width$}  {:6.1} s  {}\n", result.mutant.name, result.seconds(), result.killed_by())
    };
    let killed = results.iter().filter(|result| result.is_killed()).count();
    let lines: String = results.iter().map(line_of).collect();
    format!("{lines}{killed} of {} killed", results.len())
}

/// The table as a page of the documentation.
pub(super) fn page(results: &[MutantResult<'_>], took: Duration) -> String {
    let row_of = |result: &MutantResult<'_>| {
        let Mutant { name, breaks, .. } = result.mutant;
        format!(
            "| [{name}](../mutants/{name}.patch) | {breaks} | `{}` | {:.1} |\n",
            result.killed_by(),
            result.seconds()
        )
    };
    let rows: String = results.iter().map(row_of).collect();
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

/// The name of the first test that failed.
fn failed_test(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

/// The first line that says what is wrong: the line after the location of a panic, or the line of a seed of the
/// simulation.
fn failure_reason(output: &str) -> &str {
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
        let output = "running 2 tests\ntest a::b ... FAILED\ntest c ... ok\n\n---- a::b stdout ----\n\n\
                    thread 'a::b' (7) panicked at x.rs:1:2:\nassertion failed: x\nnote: run\n";
        assert_eq!(failed_test(output), Some("a::b"));
        assert_eq!(failure_reason(output), "assertion failed: x");
        assert_eq!(failure_reason("seeds\nseed 4: I1: two\nend\n"), "seed 4: I1: two");
        assert_eq!((failed_test(""), failure_reason("")), (None, ""));
    }
}

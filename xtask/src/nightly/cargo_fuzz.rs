//! Runs the targets of `fuzz/` with cargo-fuzz. It knows which code an input reaches, and makes more mutations of
//! inputs that reach new code.
//!
//! cargo-fuzz runs without a sanitizer, so that a stable compiler can build the targets: the instrumentation needs only
//! stable options. Sanitizers look for errors that safe code cannot have. Inputs that reached new code are stored in
//! `target/nightly`, and the next night begins with them.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use super::{
    markdown::{bold, grouped, table},
    night::Night,
};
use crate::{
    run::{Failure, Steps},
    setup,
    workspace::Workspace,
};

/// The directory of the targets.
const TARGETS: &str = "fuzz/fuzz_targets";
/// The name of the log.
const LOG: &str = "cargo-fuzz";
/// Prints the name of the target to the log, and runs it. The fuzzer writes to its standard error.
const RUN_SCRIPT: &str = "echo \"target $0\"; exec \"$@\" 2>&1";

/// Runs all targets, for `time` in total. Debug assertions and overflow checks are on.
pub(super) fn run(steps: &mut Steps, night: &Night<'_>, time: Duration) -> Result<(), Failure> {
    setup::for_fuzz(steps, night.workspace)?;
    let names = steps.step("list the fuzz targets", || targets(night.workspace))?;
    steps.command("build the fuzz targets", &mut cargo_fuzz(night.workspace, &["build"]))?;
    let seconds = (time / u32::try_from(names.len()).unwrap_or(u32::MAX)).as_secs().max(1);
    steps.step("the fuzz targets", || {
        let failed: Vec<String> = names
            .iter()
            .filter_map(|name| Some(format!("{name}: {}", run_target(night, name, seconds).err()?)))
            .collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    })
}

/// The names of all targets, in order.
fn targets(workspace: &Workspace) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{TARGETS}: {error}");
    let mut names = Vec::new();
    for entry in fs::read_dir(workspace.root.join(TARGETS)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    if names.is_empty() { Err(format!("there is no target in {TARGETS}")) } else { Ok(names) }
}

/// Runs one target.
fn run_target(night: &Night<'_>, name: &str, seconds: u64) -> Result<(), String> {
    let dir = |what: &str| -> Result<PathBuf, String> {
        let dir = night.dir().join("fuzz").join(what).join(name);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    };
    let (corpus, findings) = (dir("corpus")?, dir("found")?);
    let mut fuzz = cargo_fuzz(night.workspace, &["run", name]);
    fuzz.arg(corpus).args(["--", "-verbosity=0", "-print_final_stats=1"]);
    fuzz.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", findings.display()));
    let mut shell = Command::new("sh");
    shell
        .current_dir(&night.workspace.root)
        .args(["-c", RUN_SCRIPT, name])
        .arg(fuzz.get_program())
        .args(fuzz.get_args());
    night.run_logged(LOG, &mut shell)
}

/// A `cargo fuzz` command with a separate build directory, because no other build can use its instrumented code.
fn cargo_fuzz(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = Command::new(setup::cargo_fuzz(workspace));
    command.current_dir(&workspace.root).args(words).args(["--sanitizer", "none", "--target-dir"]);
    command.arg(workspace.target.join("fuzz"));
    command
}

/// The figures of this night as the table of docs/proof.md.
pub(super) fn page(night: &Night<'_>) -> String {
    table(&["parser", "executions", "seconds", "findings"], rows(&night.log(LOG)))
}

fn rows(output: &str) -> Vec<[String; 4]> {
    // The name, executions, seconds and findings of each target.
    let mut rows: Vec<(&str, u64, u64, u64)> = Vec::new();
    for line in output.lines() {
        let figure = |name: &str| line.strip_prefix(name).and_then(|rest| rest.trim().parse::<u64>().ok());
        if let Some(name) = line.strip_prefix("target ") {
            rows.push((name, 0, 0, 0));
        }
        let Some(row) = rows.last_mut() else { continue };
        if let Some(count) = figure("stat::number_of_executed_units:") {
            row.1 = count;
        } else if let Some(rate) = figure("stat::average_exec_per_sec:") {
            row.2 = row.1.checked_div(rate).unwrap_or(0);
        } else if line.starts_with("SUMMARY: libFuzzer: ") {
            row.3 += 1;
        }
    }
    rows.into_iter()
        .map(|(name, count, seconds, findings)| {
            [format!("`{name}`"), grouped(count), grouped(seconds), bold(&grouped(findings))]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "target a\nINFO: x\nstat::number_of_executed_units: 1300000\nstat::average_exec_per_sec:     10000\n\
        target b\n==5301== ERROR: libFuzzer: deadly signal\nSUMMARY: libFuzzer: deadly signal\n\
        stat::number_of_executed_units: 7\nstat::average_exec_per_sec:     0\n";

    #[test]
    fn the_output_of_the_fuzzer_is_parsed() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        assert_eq!(
            rows(OUTPUT),
            [row(["`a`", "1,300,000", "130", "**0**"]), row(["`b`", "7", "0", "**1**"])]
        );
    }

    /// A target that the manifest of `fuzz/` does not name would not be built.
    #[test]
    fn every_target_is_in_the_manifest() {
        let Ok(workspace) = Workspace::find() else { panic!("cargo knows the workspace") };
        let names = targets(&workspace).expect("the targets can be listed");
        let manifest = fs::read_to_string(workspace.root.join("fuzz/Cargo.toml")).expect("it has a manifest");
        for name in &names {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), names.len());
    }
}

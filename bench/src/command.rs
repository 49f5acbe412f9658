//! A complete run of `leasehold run x -- true`, compared with `flock f true` and with `true` alone.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    Failure,
    comparison::{Comparison, quantile},
};

/// The number of runs of a command in one measurement. The figure of the measurement is the median of their times.
const RUNS: usize = 5;

pub(crate) fn bench() -> Result<(), Failure> {
    let leasehold = built()?;
    let dir = tempfile::tempdir()?;
    let url = format!("file://{}", dir.path().join("locks").display());
    let file = dir.path().join("f");
    let commands = || {
        let mut flock = Command::new("flock");
        flock.arg(&file).arg("true");
        let mut run = Command::new(&leasehold);
        run.args(["run", "x", "--", "true"]).env("LEASEHOLD_URL", &url);
        (flock, run)
    };
    Comparison::new("ms, median")
        .candidate("flock f true", || median(commands().0))
        .candidate("leasehold run x -- true", || median(commands().1))
        .candidate("true", || median(Command::new("true")))
        .candidate("leasehold --version", || {
            let mut version = Command::new(&leasehold);
            version.arg("--version");
            median(version)
        })
        .run()
}

fn median(mut command: Command) -> Result<f64, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begin = Instant::now();
        let status = command.status()?;
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
        if !status.success() {
            return Err(format!("{command:?} ended with {status}").into());
        }
    }
    Ok(quantile(&mut times, 0.5))
}

/// The path of the `leasehold` command as users get it: the release build in the same target directory as this program.
fn built() -> Result<PathBuf, Failure> {
    let own_path = std::env::current_exe()?;
    let target = own_path.ancestors().nth(2).unwrap_or(Path::new("."));
    let leasehold = target.join("release/leasehold");
    if !leasehold.exists() {
        return Err("build the command first: cargo build --release -p leasehold-cli".into());
    }
    Ok(leasehold)
}

//! Runs commands side by side. Tests mostly wait, for servers and for leases, so several test programs can share one
//! processor.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{rerun, suites::Suite};

/// A command with a name. While it runs, its output goes to a file.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// The test program that the job runs, if it runs a whole one.
    pub(crate) suite: Option<Suite>,
}

/// The result of a job.
pub(crate) struct JobResult {
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// Why the job failed. `None`: it succeeded.
    pub(crate) failure: Option<String>,
    /// The output of the job.
    pub(crate) output: String,
    pub(crate) suite: Option<Suite>,
    /// How many tests of the job passed and failed.
    pub(crate) counts: Counts,
    /// The tests that failed beside other programs, and passed when they ran alone.
    pub(crate) unsteady: Vec<String>,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Jobs that run side by side. At most `width` of them run at a time.
pub(crate) struct Lane {
    pub(crate) width: usize,
    pub(crate) jobs: VecDeque<Job>,
}

impl Job {
    pub(crate) fn new(name: impl Into<String>, command: Command) -> Self {
        Self { name: name.into(), command, suite: None }
    }
}

/// Runs all lanes at the same time, and stores the output of each job in the folder `logs`. Prints each job when it
/// ends: one line if it succeeded, and its whole output if it failed. In its environment, `LEASEHOLD_TEST_SLOT` gives
/// each job of a lane a number below the width of the lane. By this number the testkit gives test programs different
/// ports.
pub(crate) fn run(lanes: Vec<Lane>, logs: &Path) -> Vec<JobResult> {
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for Lane { width, jobs } in lanes {
            let jobs = std::sync::Arc::new(Mutex::new(jobs));
            for slot in 0..width {
                let (jobs, results) = (std::sync::Arc::clone(&jobs), &results);
                scope.spawn(move || {
                    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    while let Some(mut job) = next() {
                        job.command.env("LEASEHOLD_TEST_SLOT", slot.to_string());
                        let result = run_job(job, logs);
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        print_result(&result);
                        results.push(result);
                    }
                });
            }
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_job(Job { name, mut command, suite }: Job, logs: &Path) -> JobResult {
    let begin = Instant::now();
    let log = logs.join(name.replace(['/', ' ', ','], "-") + ".log");
    let status = File::create(&log).and_then(|file| {
        let stderr = file.try_clone()?;
        command.stdin(Stdio::null()).stdout(file).stderr(stderr).status()
    });
    let failure = match status {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("ended with {status}")),
        Err(error) => Some(format!("cannot be run: {error}")),
    };
    let output = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let counts = counts(&output);
    JobResult { name, took: begin.elapsed(), failure, output, suite, counts, unsteady: Vec::new() }
}

fn print_result(result: &JobResult) {
    let took = result.took.as_secs_f64();
    if let Some(reason) = &result.failure {
        // If tests of the job will be rerun, its output is marked.
        let margin = if rerun::tests_to_rerun(result).is_some() { "| " } else { "" };
        println!("== {}", result.name);
        result.output.trim_end().lines().for_each(|line| println!("{margin}{line}"));
        println!("-- {}: {reason} after {took:.1} s", result.name);
        return;
    }
    let harness_results = result.output.lines().filter(|line| line.starts_with("test result: "));
    let Counts { passed, failed } = result.counts;
    if passed + failed == 0 {
        println!("-- {}: {took:.1} s", result.name);
    } else {
        println!("-- {}: {took:.1} s", result.name);
        harness_results
            .filter(|line| !line.contains(" 0 passed; 0 failed"))
            .for_each(|line| println!("   {line}"));
    }
}

/// How many tests passed and failed, according to the last lines of the test harness in `output`.
fn counts(output: &str) -> Counts {
    let number = |line: &str, word: &str| {
        let before = line.split(word).next().unwrap_or_default().trim_end();
        before.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    let closing_lines = output.lines().filter(|line| line.starts_with("test result: "));
    closing_lines.fold(Counts::default(), |sum, line| Counts {
        passed: sum.passed + number(line, " passed;"),
        failed: sum.failed + number(line, " failed;"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::new(script.split(' ').next().unwrap(), command)
    }

    #[test]
    fn each_job_ends_with_its_output_and_status() {
        let logs = std::env::temp_dir()
            .join(format!("leasehold-xtask-each_job_ends_with_its_output-{}", std::process::id()));
        fs::create_dir_all(&logs).unwrap();
        let jobs = ["true", "echo a; echo b >&2; exit 3"].map(job).into();
        let mut results = run(vec![Lane { width: 2, jobs }], &logs);
        results.sort_by(|a, b| b.name.cmp(&a.name));
        assert!(results[0].failure.is_none());
        assert!(results[1].failure.as_ref().unwrap().contains("3"));
        assert_eq!(results[1].output, "a\nb\n");
        fs::remove_dir_all(&logs).unwrap();
    }

    #[test]
    fn the_counts_of_the_harness_are_parsed() {
        let output = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out\nx\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(output), Counts { passed: 13, failed: 2 });
        assert_eq!(counts("running 0 tests"), Counts::default());
    }
}

//! Reruns tests that failed: each runs once more, alone, when nothing else of the run is left.
//!
//! Tests of leases on real servers can fail on a machine that stalls for seconds, and such a failure says nothing about
//! the code under test. A test that also fails alone has failed. A test that passes alone is unsteady: the run reports
//! it in its closing lines, and passes.

use std::path::Path;

use crate::{
    side_by_side::{self, Ended, Job, Lane},
    suites::Suite,
    test::in_memory,
};

/// Test programs that search at random: a failure by chance is their purpose, so they are not rerun.
const SEARCHES: [&str; 4] = ["fenced", "model", "sim", "fault_run"];
/// With more failures than this in one program, the machine is not the cause.
const MOST: usize = 5;

/// Reruns the failed tests, one after another.
pub(crate) fn alone(ended: Vec<Ended>, logs: &Path) -> Vec<Ended> {
    ended.into_iter().map(|done| once_more(done, logs)).collect()
}

/// The tests to rerun after this job.
pub(crate) fn of(done: &Ended) -> Option<(&Suite, Vec<String>)> {
    let suite = done.suite.as_ref().filter(|suite| !SEARCHES.contains(&&*suite.target))?;
    done.failure.as_ref()?;
    let failed = failed(&done.output);
    // A program that died did not report its last tests.
    let all_reported = failed.len() as u64 == done.counts.1;
    (all_reported && !failed.is_empty() && failed.len() <= MOST).then_some((suite, failed))
}

fn once_more(first: Ended, logs: &Path) -> Ended {
    let Some((suite, tests)) = of(&first) else { return first };
    let mut command = suite.command();
    command.args(["--exact", "--test-threads", "1"]).args(&tests);
    let job = Job::new(format!("{}, alone", first.name), command);
    let second = side_by_side::run(vec![in_memory(Lane { width: 1, jobs: [job].into() })], logs);
    second.into_iter().fold(first, |first, second| both(first, second, &tests))
}

/// The combined result of both runs.
fn both(first: Ended, second: Ended, tests: &[String]) -> Ended {
    let failed = failed(&second.output);
    // A test that was not rerun does not count as passed.
    let passed = second.counts.0 == (tests.len() - failed.len()) as u64;
    let unsteady = tests.iter().filter(|test| passed && !failed.contains(test));
    let unsteady: Vec<_> = unsteady.map(|test| format!("{}: {test}", first.name)).collect();
    let passes = unsteady.len() as u64;
    Ended {
        took: first.took + second.took,
        failure: second.failure.or_else(|| first.failure.filter(|_| unsteady.len() < tests.len())),
        counts: (first.counts.0 + passes, first.counts.1 - passes),
        unsteady,
        ..first
    }
}

/// The names of the failed tests, from the list at the end of the test harness's output.
fn failed(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, time::Duration};

    use super::*;

    const TWO_FAILED: &str = "\nfailures:\n\n---- a::b stdout ----\nfailures:\n    no\n\nfailures:\n    a::b\n    c\n\n\
                              test result: FAILED. 3 passed; 2 failed; 0 ignored\n";

    fn ended(target: &str, output: &str, counts: (u64, u64)) -> Ended {
        Ended {
            name: target.to_owned(),
            took: Duration::from_secs(1),
            failure: (counts.1 > 0).then(|| "ended".to_owned()),
            output: output.to_owned(),
            suite: Some(Suite { target: target.to_owned(), ..Suite::default() }),
            counts,
            unsteady: Vec::new(),
        }
    }

    #[test]
    fn a_few_reported_tests_are_rerun_but_no_searches() {
        let tests = |done: Ended| of(&done).map(|(_, tests)| tests);
        assert_eq!(tests(ended("fault_cases", TWO_FAILED, (3, 2))).unwrap(), ["a::b", "c"]);
        assert_eq!(tests(ended("fault_run", TWO_FAILED, (3, 2))), None);
        assert_eq!(tests(ended("fault_cases", TWO_FAILED, (3, 3))), None, "one was not reported");
        assert_eq!(tests(ended("fault_cases", "", (5, 0))), None, "none failed");
        let many = format!("\nfailures:\n{}", "    x\n".repeat(6));
        assert_eq!(tests(ended("fault_cases", &many, (0, 6))), None, "the program is broken");
        assert_eq!(
            tests(Ended { suite: None, ..ended("fault_cases", TWO_FAILED, (3, 2)) }),
            None,
            "no tests"
        );
    }

    #[test]
    fn a_test_is_unsteady_only_if_it_was_run_and_passed() {
        let names = ["a::b".to_owned(), "c".to_owned()];
        let first = || ended("fault_cases", TWO_FAILED, (3, 2));
        let passed = both(first(), ended("fault_cases", "", (2, 0)), &names);
        assert_eq!((passed.counts, passed.unsteady.len(), passed.failure), ((5, 0), 2, None));
        let one = both(first(), ended("fault_cases", "\nfailures:\n    c\n", (1, 1)), &names);
        assert_eq!(
            (one.counts, one.unsteady, one.failure.is_some()),
            ((4, 1), vec!["fault_cases: a::b".to_owned()], true)
        );
        let died = both(
            first(),
            Ended { failure: Some("killed".to_owned()), ..ended("fault_cases", "", (0, 0)) },
            &names,
        );
        assert_eq!((died.counts, died.unsteady.len(), died.failure.is_some()), ((3, 2), 0, true));
        let ran_none = both(first(), ended("fault_cases", "", (0, 0)), &names);
        assert_eq!((ran_none.counts, ran_none.failure.is_some()), ((3, 2), true));
    }

    #[test]
    fn a_rerun_runs_the_failed_tests_alone() {
        let logs = tempfile_dir();
        let program = logs.join("program");
        fs::write(&program, "#!/bin/sh\necho \"$@\"\necho 'test result: ok. 2 passed; 0 failed;'\n").unwrap();
        Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        let mut first = ended("fault_cases", TWO_FAILED, (3, 2));
        first.suite =
            Some(Suite { target: "fault_cases".to_owned(), dir: logs.clone(), program, ..Suite::default() });
        let done = alone(vec![first], &logs);
        assert_eq!((done[0].counts, done[0].unsteady.len()), ((5, 0), 2));
        let output = fs::read_to_string(logs.join("fault_cases--alone.log")).unwrap();
        assert!(output.starts_with("--exact --test-threads 1 a::b c\n"), "{output}");
        fs::remove_dir_all(&logs).unwrap();
    }

    fn tempfile_dir() -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("leasehold-xtask-again-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

//! Reruns tests that failed. Each of them runs once more, alone, when all other jobs have ended.
//!
//! If a machine stalls for seconds, tests of leases on real servers can fail, and such a failure says nothing about the
//! code under test. A test that fails again when it runs alone has failed. A test that passes alone is unsteady: the
//! run reports it in its last lines, and passes.

use std::path::Path;

use crate::{
    side_by_side::{self, Counts, Job, JobResult, Lane},
    suites::Suite,
    test::in_memory,
};

/// Test programs that search at random. They are meant to fail by chance if there is a bug, so they are not rerun.
const SEARCHES: [&str; 4] = ["fenced", "model", "sim", "fault_run"];
/// If more tests of one program than this fail, the machine is not the cause.
const MAX_FAILURES: usize = 5;

/// Reruns the failed tests, one after another.
pub(crate) fn rerun_failed(results: Vec<JobResult>, logs: &Path) -> Vec<JobResult> {
    results.into_iter().map(|result| rerun(result, logs)).collect()
}

/// The tests of this job that are to be rerun, with their test program.
pub(crate) fn tests_to_rerun(result: &JobResult) -> Option<(&Suite, Vec<String>)> {
    let suite = result.suite.as_ref().filter(|suite| !SEARCHES.contains(&&*suite.target))?;
    result.failure.as_ref()?;
    let failed = failed_tests(&result.output);
    // If a program died, its output lacks the names of some tests that failed.
    let all_reported = failed.len() as u64 == result.counts.failed;
    (all_reported && !failed.is_empty() && failed.len() <= MAX_FAILURES).then_some((suite, failed))
}

fn rerun(first: JobResult, logs: &Path) -> JobResult {
    let Some((suite, tests)) = tests_to_rerun(&first) else { return first };
    let mut command = suite.command();
    command.args(["--exact", "--test-threads", "1"]).args(&tests);
    let job = Job::new(format!("{}, alone", first.name), command);
    let second = side_by_side::run(vec![in_memory(Lane { width: 1, jobs: [job].into() })], logs);
    second.into_iter().fold(first, |first, second| combined(first, second, &tests))
}

/// The result of both runs together.
fn combined(first: JobResult, second: JobResult, tests: &[String]) -> JobResult {
    let failed = failed_tests(&second.output);
    // If not all tests were rerun, none of them counts as passed.
    let all_were_rerun = second.counts.passed == (tests.len() - failed.len()) as u64;
    let unsteady = tests.iter().filter(|test| all_were_rerun && !failed.contains(test));
    let unsteady: Vec<_> = unsteady.map(|test| format!("{}: {test}", first.name)).collect();
    let passed_now = unsteady.len() as u64;
    JobResult {
        took: first.took + second.took,
        failure: second.failure.or_else(|| first.failure.filter(|_| unsteady.len() < tests.len())),
        counts: Counts { passed: first.counts.passed + passed_now, failed: first.counts.failed - passed_now },
        unsteady,
        ..first
    }
}

/// The names of the failed tests. The test harness lists them at the end of its output.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, time::Duration};

    use super::*;

    const TWO_FAILED: &str = "\nfailures:\n\n---- a::b stdout ----\nfailures:\n    no\n\nfailures:\n    a::b\n    c\n\n\
                              test result: FAILED. 3 passed; 2 failed; 0 ignored\n";

    fn job_result(target: &str, output: &str, (passed, failed): (u64, u64)) -> JobResult {
        JobResult {
            name: target.to_owned(),
            took: Duration::from_secs(1),
            failure: (failed > 0).then(|| "ended".to_owned()),
            output: output.to_owned(),
            suite: Some(Suite { target: target.to_owned(), ..Suite::default() }),
            counts: Counts { passed, failed },
            unsteady: Vec::new(),
        }
    }

    fn numbers(result: &JobResult) -> (u64, u64) {
        (result.counts.passed, result.counts.failed)
    }

    #[test]
    fn a_few_reported_tests_are_rerun_but_no_searches() {
        let tests = |result: JobResult| tests_to_rerun(&result).map(|(_, tests)| tests);
        assert_eq!(tests(job_result("fault_cases", TWO_FAILED, (3, 2))).unwrap(), ["a::b", "c"]);
        assert_eq!(tests(job_result("fault_run", TWO_FAILED, (3, 2))), None);
        assert_eq!(tests(job_result("fault_cases", TWO_FAILED, (3, 3))), None, "one was not reported");
        assert_eq!(tests(job_result("fault_cases", "", (5, 0))), None, "none failed");
        let many = format!("\nfailures:\n{}", "    x\n".repeat(6));
        assert_eq!(tests(job_result("fault_cases", &many, (0, 6))), None, "the program is broken");
        assert_eq!(
            tests(JobResult { suite: None, ..job_result("fault_cases", TWO_FAILED, (3, 2)) }),
            None,
            "no tests"
        );
    }

    #[test]
    fn a_test_is_unsteady_only_if_it_was_run_and_passed() {
        let names = ["a::b".to_owned(), "c".to_owned()];
        let first = || job_result("fault_cases", TWO_FAILED, (3, 2));
        let passed = combined(first(), job_result("fault_cases", "", (2, 0)), &names);
        assert_eq!((numbers(&passed), passed.unsteady.len(), passed.failure), ((5, 0), 2, None));
        let one = combined(first(), job_result("fault_cases", "\nfailures:\n    c\n", (1, 1)), &names);
        assert_eq!(
            (numbers(&one), one.unsteady, one.failure.is_some()),
            ((4, 1), vec!["fault_cases: a::b".to_owned()], true)
        );
        let died = combined(
            first(),
            JobResult { failure: Some("killed".to_owned()), ..job_result("fault_cases", "", (0, 0)) },
            &names,
        );
        assert_eq!((numbers(&died), died.unsteady.len(), died.failure.is_some()), ((3, 2), 0, true));
        let ran_none = combined(first(), job_result("fault_cases", "", (0, 0)), &names);
        assert_eq!((numbers(&ran_none), ran_none.failure.is_some()), ((3, 2), true));
    }

    #[test]
    fn a_rerun_runs_the_failed_tests_alone() {
        let logs = folder_of("a_rerun_runs_the_failed_tests_alone");
        let program = logs.join("program");
        fs::write(&program, "#!/bin/sh\necho \"$@\"\necho 'test result: ok. 2 passed; 0 failed;'\n").unwrap();
        Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        let mut first = job_result("fault_cases", TWO_FAILED, (3, 2));
        first.suite =
            Some(Suite { target: "fault_cases".to_owned(), dir: logs.clone(), program, ..Suite::default() });
        let result = rerun_failed(vec![first], &logs);
        assert_eq!((numbers(&result[0]), result[0].unsteady.len()), ((5, 0), 2));
        let output = fs::read_to_string(logs.join("fault_cases--alone.log")).unwrap();
        assert!(output.starts_with("--exact --test-threads 1 a::b c\n"), "{output}");
        fs::remove_dir_all(&logs).unwrap();
    }

    /// A folder for temporary files that only this test uses.
    fn folder_of(test: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("leasehold-xtask-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

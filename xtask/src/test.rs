//! The tiers for which a person waits: `cargo xtask quick` after each save, `./test` before a change lands.
//!
//! Both tiers compile the tests first. Then the test programs run side by side, because they mostly wait. At the same
//! time run the checks that only need processor time: lints, documentation, dependencies.

use std::{collections::VecDeque, fs, num::NonZero, path::PathBuf, process::Command, thread};

use crate::{
    api, check, own_rules, packages, python, rerun,
    run::{Failure, Steps, under},
    setup,
    side_by_side::{self, Job, JobResult, Lane},
    suites::{self, Kind, Suite},
    tiers::{self, Tier},
    workspace::{PEERS, Workspace},
};

/// How many more test programs run at a time than there are processors. Test programs mostly wait, for leases and
/// servers.
const EXTRA_PROGRAMS: usize = 1;
/// If a process is allowed fewer open files than this, the tests of each program run one after another. The limit is
/// for all tests of a process together, and each test has clients and servers.
const MIN_OPEN_FILES: u64 = 8192;
/// How many tests of each program run at a time, for each processor. If there were more, tests would have to wait for
/// processor time.
const TESTS_PER_PROCESSOR: usize = 2;
/// The packages whose tests are quick: core, the library, the command, and the project's tasks.
const QUICK_PACKAGES: [&str; 8] =
    ["-p", "leasehold-core", "-p", "leasehold", "-p", "leasehold-cli", "-p", "xtask"];
/// The arguments of cargo that select the packages with tests. The package of the benches has none; it is linted, and
/// its benches run at night.
const TESTED_PACKAGES: [&str; 3] = ["--workspace", "--exclude", "leasehold-bench"];
/// The ends of the names of the storms of the Python module.
const PYTHON_STORMS: [&str; 7] =
    ["[file]", "[sqlite]", "[etcd]", "[zookeeper]", "[postgres]", "[mysql]", "_beside_redis_py"];

/// The first tier, for after each save: format, our own rules, lints, and the quick tests.
pub(crate) fn quick(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_lints(steps)?;
    check::format_and_own_rules(steps, workspace)?;
    let suites = steps.step("compile the tests", || suites::build(workspace, &QUICK_PACKAGES))?;
    let tests = test_lane(suites, &[Tier::Quick]);
    let checks = [check::lints_of_all(workspace)].into();
    run_lanes(steps, workspace, vec![tests, Lane { width: 1, jobs: checks }])
}

/// A directory in memory. Servers of tests store their data in it, if there is enough room.
const MEMORY_FOLDER: &str = "/dev/shm";
/// How much room is enough, in bytes: several times what all servers that run at the same time need.
const REQUIRED_SPACE: u64 = 6 << 30;
/// The variable that tells the testkit this directory.
const DATA_VARIABLE: &str = "LEASEHOLD_TEST_DATA";

/// The second tier, for before a change lands: everything except the work of a night.
pub(crate) fn all(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_lints(steps)?;
    setup::for_other_systems(steps)?;
    check::format_and_own_rules(steps, workspace)?;
    let mut suites = thread::scope(|scope| {
        let setup_thread =
            scope.spawn(|| setup::for_tests(workspace).and_then(|()| python::set_up(workspace)));
        let suites = steps.step("compile the tests", || suites::build(workspace, &TESTED_PACKAGES));
        let set_up = setup_thread.join().map_err(|_| Failure::new("set up the system", "it panicked"))?;
        set_up.map_err(|reason| Failure::new("set up the system", reason))?;
        suites
    })?;
    suites.push(steps.step("build the wheel of the Python module", || python::suite(workspace))?);
    steps.step("tiers", || check_tiers(workspace, &suites))?;
    let mut checks: VecDeque<Job> = [doc_tests(workspace), check::lints_of_all(workspace)].into();
    checks.push_back(check::documentation(workspace));
    // After the lints and the documentation, which compile most of what these need.
    checks.push_back(api::job(workspace));
    checks.push_back(packages::job(workspace));
    checks.push_back(check::other_systems(workspace));
    checks.extend(check::lints_of_features(workspace));
    let dependencies = [setup::cargo_deny_job(workspace)].into_iter().flatten();
    let dependencies = dependencies.chain(check::dependencies(workspace)).collect();
    let lanes = vec![
        in_memory(test_lane(suites, &[Tier::Quick, Tier::Test])),
        Lane { width: 1, jobs: checks },
        Lane { width: 1, jobs: dependencies },
    ];
    run_lanes(steps, workspace, lanes)?;
    setup::clean_up(workspace).map_err(|reason| Failure::new("clean up", reason))
}

/// The tests that run only at night: each test of the last tier, the conformance suite with many waiters, and the tests
/// of the peers.
pub(crate) fn nightly_jobs(steps: &mut Steps, workspace: &Workspace) -> Result<Vec<Job>, Failure> {
    let suites = build_suites(steps, workspace)?;
    let mut jobs = Vec::new();
    for suite in suites.iter().filter(|suite| tiers::tier_of(suite) == Some(Tier::Nightly)) {
        let tests = suite.tests().map_err(|reason| Failure::new("list the tests", reason))?;
        jobs.extend(tests.into_iter().map(|test| {
            let mut command = suite.command();
            command.args(["--exact", &test]);
            Job::new(format!("{suite}, {test}"), command)
        }));
    }
    let has_crowd = |suite: &&Suite| {
        ["leasehold-sql", "leasehold-etcd", "leasehold-zookeeper"].contains(&&*suite.package)
            && suite.kind == Kind::Integration
    };
    jobs.extend(suites.iter().filter(has_crowd).map(crowd));
    jobs.extend(suites.iter().filter(|suite| suite.kind == Kind::Python).flat_map(python_storms));
    jobs.extend(suites.iter().filter(|suite| suite.kind == Kind::Python).map(python_on_all_engines));
    jobs.push(python::pyright_job(steps, workspace)?);
    let mut peers = workspace.cargo_of_peers("test");
    peers.arg("--locked");
    jobs.push(Job::new(format!("tests of {PEERS}"), peers));
    Ok(jobs)
}

/// Installs what the tests need, and builds the test programs.
pub(crate) fn build_suites(steps: &mut Steps, workspace: &Workspace) -> Result<Vec<Suite>, Failure> {
    steps
        .step("set up the system", || setup::for_tests(workspace).and_then(|()| python::set_up(workspace)))?;
    let mut suites = steps.step("compile the tests", || suites::build(workspace, &TESTED_PACKAGES))?;
    suites.push(steps.step("build the wheel of the Python module", || python::suite(workspace))?);
    Ok(suites)
}

/// Runs one of the jobs of [`nightly_jobs`].
pub(crate) fn run_one(workspace: &Workspace, job: Job) -> Result<(), String> {
    let logs = logs(workspace)?;
    let results = side_by_side::run(vec![Lane { width: 1, jobs: [job].into() }], &logs);
    sum_up(&results)
}

/// The conformance suite with a thousand claims in its largest case. In `./test` this case has fewer claims.
fn crowd(suite: &Suite) -> Job {
    let mut command = suite.command();
    command.args(["conformance", "--test-threads", "1"]).env("LEASEHOLD_CROWD", "1000");
    Job::new(format!("{suite}, a thousand claims on one name"), command)
}

/// The storms of Python programs, two minutes on each engine. `./test` runs two of them, for two seconds.
fn python_storms(suite: &Suite) -> Vec<Job> {
    let job = |storm: &str| {
        let mut command = suite.command();
        command.args(["--exact", &format!("test_storm.py::test_no_two_sections_overlap_in_a_storm{storm}")]);
        command.env("LEASEHOLD_STORM_SECONDS", "120");
        Job::new(format!("{suite}, a storm of two minutes{storm}"), command)
    };
    PYTHON_STORMS.map(job).into()
}

/// The tests of the Python module on all engines. In `./test` those that start processes or need much time run on
/// examples of engines.
fn python_on_all_engines(suite: &Suite) -> Job {
    let mut command = suite.command();
    command.env("LEASEHOLD_ALL_ENGINES", "1");
    Job::new(format!("{suite}, on all engines"), command)
}

fn check_tiers(workspace: &Workspace, suites: &[Suite]) -> Result<(), String> {
    let contributing = fs::read_to_string(workspace.root.join("CONTRIBUTING.md"));
    let contributing = contributing.map_err(|error| format!("CONTRIBUTING.md: {error}"))?;
    own_rules::verdict(&tiers::complaints(suites, &contributing))
}

fn test_lane(mut suites: Vec<Suite>, chosen: &[Tier]) -> Lane {
    tiers::sort(&mut suites);
    suites.retain(|suite| tiers::tier_of(suite).is_some_and(|tier| chosen.contains(&tier)));
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let test_threads = if open_files() < MIN_OPEN_FILES { 1 } else { processors * TESTS_PER_PROCESSOR };
    let job = |suite: &Suite| {
        let mut command = suite.command();
        command.args(["--test-threads", &test_threads.to_string()]);
        Job { suite: Some(suite.clone()), ..Job::new(suite.to_string(), command) }
    };
    Lane { width: processors + EXTRA_PROGRAMS, jobs: suites.iter().map(job).collect() }
}

/// The limit of open files of this process.
fn open_files() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    // The first number is the limit in effect; the second says how far a process may raise it.
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(u64::MAX)
}

/// Lets the servers of tests store their data in memory. Otherwise tests may have to wait for a disk that other
/// programs use too.
pub(crate) fn in_memory(mut lane: Lane) -> Lane {
    if free_space(MEMORY_FOLDER).is_some_and(|free| free > REQUIRED_SPACE) {
        for job in &mut lane.jobs {
            job.command.env(DATA_VARIABLE, MEMORY_FOLDER);
        }
    }
    lane
}

/// The number of free bytes on the file system of this directory, from `df`.
fn free_space(directory: &str) -> Option<u64> {
    let output = Command::new("df").args(["--block-size=1", "--output=avail", directory]).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().nth(1)?.trim().parse().ok()
}

fn doc_tests(workspace: &Workspace) -> Job {
    let mut cargo = workspace.cargo("test");
    // The packages of the tests, so that what is compiled for these serves here.
    cargo.args(["--locked", "--all-features", "--doc"]).args(TESTED_PACKAGES);
    Job::new("doc tests", cargo)
}

fn run_lanes(steps: &mut Steps, workspace: &Workspace, lanes: Vec<Lane>) -> Result<(), Failure> {
    let results = steps.step("tests and checks", || {
        let logs = logs(workspace)?;
        Ok::<_, String>(rerun::rerun_failed(side_by_side::run(lanes, &logs), &logs))
    })?;
    sum_up(&results).map_err(|reason| Failure::new("tests and checks", reason))
}

/// The folder for the output of jobs.
fn logs(workspace: &Workspace) -> Result<PathBuf, String> {
    let logs = workspace.target.join("test-logs");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    Ok(logs)
}

/// Prints the times, and the number of tests that passed. If jobs failed, the error has their names.
fn sum_up(results: &[JobResult]) -> Result<(), String> {
    println!("== times of tests and checks, side by side");
    let mut longest: Vec<_> = results.iter().collect();
    longest.sort_by_key(|result| std::cmp::Reverse(result.took));
    for result in longest {
        println!("{:8.1} s  {}", result.took.as_secs_f64(), result.name);
    }
    let counts = results.iter().map(|result| result.counts);
    let (passed, failed) = counts.fold((0, 0), |sum, counts| (sum.0 + counts.passed, sum.1 + counts.failed));
    let unsteady: Vec<_> = results.iter().flat_map(|result| &result.unsteady).collect();
    unsteady.iter().for_each(|test| println!("unsteady: {test} failed beside others, and passed alone"));
    println!("{passed} passed, {failed} failed, {} unsteady", unsteady.len());
    let failures: Vec<_> =
        results.iter().filter(|result| result.failure.is_some()).map(|result| &*result.name).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// A command that runs with low priority, so that other programs get the processors first.
pub(crate) fn at_low_priority(command: &Command) -> Command {
    under(&["nice", "-n", "19"], command)
}

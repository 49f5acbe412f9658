//! Runs the cases and collects their results.

use std::{
    any::Any,
    cell::RefCell,
    collections::VecDeque,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, stream};
use leasehold_core::Profile;

use super::{
    FAMILIES, Harness, Report,
    case::{Case, Outcome, Stop},
    faults,
    fixture::Fixture,
    names,
};
use crate::limits::{OPEN_FILES, raise_open_files};

/// The time limit of a case: far more than the longest case needs on a slow server, so that a hang becomes a failure.
const CASE_LIMIT: Duration = Duration::from_secs(300);
/// The factors for short times. If the machine is too slow for a case, the case runs again with the next factor.
const TIME_FACTORS: [u32; 4] = [1, 2, 4, 8];

/// How many fixtures of finished parallel cases are kept, with their clients, until the leftovers were checked. On some
/// engines a client itself ends lapsed holds on the server, but a server takes only a limited number of connections.
const LIVE_FIXTURES: usize = 4;

/// Runs every case that applies to the engine, and prints a report with the skipped cases and their reasons.
///
/// # Panics
/// At the end, with the list of all failures, if there are any.
pub fn engine(harness: &dyn Harness) -> Report {
    let report = run_engine(harness);
    println!("{report}");
    assert!(report.failed.is_empty(), "the engine does not conform:\n{report}");
    report
}

/// Like [`engine`], but prints nothing and does not panic at failures. For tests of the suite itself.
///
/// # Panics
/// If no runtime can be built.
pub fn run_engine(harness: &dyn Harness) -> Report {
    let enough_files = raise_open_files() >= OPEN_FILES;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime needs nothing but a few descriptors");
    runtime.block_on(async {
        let profile = harness.client().await.profile().clone();
        let run_id =
            u64::from_be_bytes(crate::claims::fresh_id().0[..8].try_into().expect("an id has 16 bytes"));
        let mut suite_run = SuiteRun { harness, profile, run_id, enough_files, report: Report::default() };
        suite_run.run_cases().await;
        suite_run.report
    })
}

/// One run of the suite.
struct SuiteRun<'a> {
    harness: &'a dyn Harness,
    profile: Profile,
    /// A random number in all names of this run.
    run_id: u64,
    /// Whether the limit of open files lets cases run in parallel, each with its own clients.
    enough_files: bool,
    report: Report,
}

impl SuiteRun<'_> {
    /// Runs all cases that apply, and records their results.
    async fn run_cases(&mut self) {
        let mut applicable = Vec::new();
        for case in FAMILIES.iter().copied().flatten() {
            match (case.skip)(&self.profile) {
                Some(reason) => self.report.skipped.push((case.name, reason.to_owned())),
                None => applicable.push(case),
            }
        }
        let parallel = if self.enough_files { self.harness.parallel_cases() } else { 1 };
        if parallel > 1 {
            // These cases run alone, because they disturb the system or use names that are not their own. A case that
            // runs in parallel does neither.
            let must_run_alone =
                |case: &&Case| faults::CASES.iter().chain(names::CASES).any(|alone| alone.name == case.name);
            let (sequential_cases, parallel_cases): (Vec<_>, Vec<_>) =
                applicable.into_iter().partition(must_run_alone);
            self.run_in_parallel(&parallel_cases, parallel).await;
            applicable = sequential_cases;
        }
        for case in applicable {
            let (outcome, fixture) = self.run_until_quick(case).await;
            let leftovers = self.leftovers().await;
            drop(fixture);
            self.record_result(case, outcome, &leftovers);
        }
    }

    /// Runs cases in parallel, up to `parallel` of them at a time; most of them wait for time to pass. Checks leftovers
    /// when all cases are over.
    async fn run_in_parallel(&mut self, cases: &[&Case], parallel: usize) {
        let this = &*self;
        let fixtures = RefCell::new(VecDeque::new());
        let outcomes: Vec<_> = stream::iter(cases)
            .map(async |case| {
                let (outcome, fixture) = this.run_until_quick(case).await;
                let mut fixtures = fixtures.borrow_mut();
                fixtures.push_back(fixture);
                if fixtures.len() > LIVE_FIXTURES {
                    fixtures.pop_front();
                }
                (*case, outcome)
            })
            .buffer_unordered(parallel)
            .collect()
            .await;
        let mut leftovers = self.leftovers().await;
        drop(fixtures);
        for (case, outcome) in outcomes {
            // Engines encode names differently, but no engine changes letters, so an encoded name contains the name of
            // its case.
            let (case_leftovers, others) = leftovers.into_iter().partition(|text| text.contains(case.name));
            leftovers = others;
            self.record_result(case, outcome, &case_leftovers);
        }
        if !leftovers.is_empty() {
            self.report.failed.push(("all cases", format!("left behind: {}", leftovers.join(", "))));
        }
    }

    /// What is left on the system.
    async fn leftovers(&self) -> Vec<String> {
        let leftovers =
            AssertUnwindSafe(tokio::time::timeout(CASE_LIMIT, self.harness.leftovers())).catch_unwind();
        match leftovers.await {
            Ok(Ok(leftovers)) => leftovers,
            Ok(Err(_)) => vec![format!("no list of leftovers within {CASE_LIMIT:?}")],
            Err(panic) => vec![format!("the list of leftovers failed: {}", text_of(&*panic))],
        }
    }

    /// Runs a case. If it failed and the machine was too slow for its short times, runs it again with longer times. The
    /// fixture of the last run is returned, so that it lives until the leftovers were checked.
    async fn run_until_quick(&self, case: &Case) -> ((Outcome, Duration), Fixture<'_>) {
        let begin = Instant::now();
        let mut time_factors = TIME_FACTORS.into_iter().peekable();
        loop {
            let time_factor = time_factors.next().unwrap_or(1);
            let fixture = Fixture::new(self.harness, &self.profile, self.run_id, case.name, time_factor);
            let result = AssertUnwindSafe(run_case(&fixture, case)).catch_unwind().await;
            let outcome =
                result.unwrap_or_else(|panic| Err(Stop::Fail(format!("panicked: {}", text_of(&*panic)))));
            let is_last = time_factors.peek().is_none();
            if is_last || !matches!(outcome, Err(Stop::Fail(_))) || !fixture.was_slow() {
                return ((outcome, begin.elapsed()), fixture);
            }
        }
    }

    /// Adds the result of a case to the report. Leftovers of the case make it fail.
    fn record_result(&mut self, case: &Case, (outcome, run_time): (Outcome, Duration), leftovers: &[String]) {
        let outcome = match outcome {
            Ok(()) if !leftovers.is_empty() => {
                Err(Stop::Fail(format!("left behind: {}", leftovers.join(", "))))
            }
            outcome => outcome,
        };
        self.report.took.push((case.name, run_time));
        match outcome {
            Ok(()) => self.report.passed.push(case.name),
            Err(Stop::Skip(reason)) => self.report.skipped.push((case.name, reason)),
            Err(Stop::Fail(why)) => self.report.failed.push((case.name, why)),
        }
    }
}

async fn run_case(fixture: &Fixture<'_>, case: &Case) -> Outcome {
    let timed_out = |_| Stop::Fail(format!("still running after {CASE_LIMIT:?}"));
    let outcome = tokio::time::timeout(CASE_LIMIT, (case.run)(fixture)).await;
    let leftovers = tokio::time::timeout(CASE_LIMIT, fixture.clean_up()).await.map_err(timed_out)?;
    outcome.map_err(timed_out)??;
    if leftovers.is_empty() {
        Ok(())
    } else {
        Err(Stop::Fail(format!("left behind: {}", leftovers.join(", "))))
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

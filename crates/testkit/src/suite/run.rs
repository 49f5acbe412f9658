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
/// The factors for short times, one for each try, while a machine is too slow for them.
const STRETCHES: [u32; 4] = [1, 2, 4, 8];

/// The clients of this many parallel cases stay alive until the leftovers were checked: some clients end lapsed holds
/// on the server, but a server takes only a limited number of connections.
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

/// The same without printing and panicking, for tests of the suite itself.
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
        let run =
            u64::from_be_bytes(crate::claims::fresh_id().0[..8].try_into().expect("an id has 16 bytes"));
        let mut run = Run { harness, profile, run, enough_files, report: Report::default() };
        run.cases().await;
        run.report
    })
}

/// One run of the suite.
struct Run<'a> {
    harness: &'a dyn Harness,
    profile: Profile,
    run: u64,
    /// Whether cases may run in parallel, each with its own clients.
    enough_files: bool,
    report: Report,
}

impl Run<'_> {
    async fn cases(&mut self) {
        let mut apply = Vec::new();
        for case in FAMILIES.iter().copied().flatten() {
            match (case.skip)(&self.profile) {
                Some(reason) => self.report.skipped.push((case.name, reason.to_owned())),
                None => apply.push(case),
            }
        }
        let parallel = if self.enough_files { self.harness.parallel_cases() } else { 1 };
        if parallel > 1 {
            // A case that runs in parallel must not disturb the system and uses only its own names.
            let is_alone =
                |case: &&Case| faults::CASES.iter().chain(names::CASES).any(|alone| alone.name == case.name);
            let (alone, beside): (Vec<_>, Vec<_>) = apply.into_iter().partition(is_alone);
            self.side_by_side(&beside, parallel).await;
            apply = alone;
        }
        for case in apply {
            let (ended, fixture) = self.tried(case).await;
            let left = self.at_rest().await;
            drop(fixture);
            self.count(case, ended, &left);
        }
    }

    /// Runs cases in parallel, up to `parallel` of them; most of them wait for time to pass. Leftovers are checked when
    /// all are over.
    async fn side_by_side(&mut self, cases: &[&Case], parallel: usize) {
        let this = &*self;
        let fixtures = RefCell::new(VecDeque::new());
        let ended: Vec<_> = stream::iter(cases)
            .map(async |case| {
                let (ended, fixture) = this.tried(case).await;
                let mut fixtures = fixtures.borrow_mut();
                fixtures.push_back(fixture);
                if fixtures.len() > LIVE_FIXTURES {
                    fixtures.pop_front();
                }
                (*case, ended)
            })
            .buffer_unordered(parallel)
            .collect()
            .await;
        let mut left = self.at_rest().await;
        drop(fixtures);
        for (case, ended) in ended {
            // Engines encode names differently, but no engine changes the letters of a case name.
            let (mine, others) = left.into_iter().partition(|left| left.contains(case.name));
            left = others;
            self.count(case, ended, &mine);
        }
        if !left.is_empty() {
            self.report.failed.push(("all cases", format!("left behind: {}", left.join(", "))));
        }
    }

    /// What is left on the system.
    async fn at_rest(&self) -> Vec<String> {
        let left = AssertUnwindSafe(tokio::time::timeout(CASE_LIMIT, self.harness.at_rest())).catch_unwind();
        match left.await {
            Ok(Ok(left)) => left,
            Ok(Err(_)) => vec![format!("no list of leftovers within {CASE_LIMIT:?}")],
            Err(panic) => vec![format!("the list of leftovers failed: {}", text_of(&*panic))],
        }
    }

    /// Runs a case. If it failed and the machine was too slow for short times, runs it again with longer times. The
    /// fixture of the last try lives until the leftovers were checked.
    async fn tried(&self, case: &Case) -> ((Outcome, Duration), Fixture<'_>) {
        let begun = Instant::now();
        let mut stretches = STRETCHES.into_iter().peekable();
        loop {
            let stretch = stretches.next().unwrap_or(1);
            let fixture = Fixture::new(self.harness, &self.profile, self.run, case.name, stretch);
            let running = AssertUnwindSafe(run_case(&fixture, case)).catch_unwind().await;
            let ended =
                running.unwrap_or_else(|panic| Err(Stop::Fail(format!("panicked: {}", text_of(&*panic)))));
            let is_last = stretches.peek().is_none();
            if is_last || !matches!(ended, Err(Stop::Fail(_))) || !fixture.was_slow() {
                return ((ended, begun.elapsed()), fixture);
            }
        }
    }

    fn count(&mut self, case: &Case, (ended, took): (Outcome, Duration), left: &[String]) {
        let ended = match ended {
            Ok(()) if !left.is_empty() => Err(Stop::Fail(format!("left behind: {}", left.join(", ")))),
            ended => ended,
        };
        self.report.took.push((case.name, took));
        match ended {
            Ok(()) => self.report.passed.push(case.name),
            Err(Stop::Skip(reason)) => self.report.skipped.push((case.name, reason)),
            Err(Stop::Fail(why)) => self.report.failed.push((case.name, why)),
        }
    }
}

async fn run_case(fixture: &Fixture<'_>, case: &Case) -> Outcome {
    let hung = |_| Stop::Fail(format!("still running after {CASE_LIMIT:?}"));
    let ended = tokio::time::timeout(CASE_LIMIT, (case.run)(fixture)).await;
    let left = tokio::time::timeout(CASE_LIMIT, fixture.clean_up()).await.map_err(hung)?;
    ended.map_err(hung)??;
    if left.is_empty() { Ok(()) } else { Err(Stop::Fail(format!("left behind: {}", left.join(", ")))) }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

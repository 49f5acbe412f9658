//! Runs the cases one after the other and collects what they came to.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use leasehold_core::Profile;

use super::{
    FAMILIES, Harness, Report,
    bench::Bench,
    case::{Case, Stop},
};

/// How long a case may run: far more than the longest needs on a slow server, and a hang becomes a failure.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Runs every case that applies to the engine, prints the skipped ones with their reasons, and reports.
///
/// # Panics
/// At the end, with the list of all failures, when there are any.
pub fn engine(harness: &dyn Harness) -> Report {
    let report = run_engine(harness);
    println!("{report}");
    assert!(report.failed.is_empty(), "the engine does not conform:\n{report}");
    report
}

/// The same without printing and panicking: for tests of the suite itself.
///
/// # Panics
/// When no runtime can be built.
pub fn run_engine(harness: &dyn Harness) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime needs nothing but a few descriptors");
    let profile = runtime.block_on(harness.client()).profile().clone();
    let run = u64::from_be_bytes(super::bench::fresh_id().0[..8].try_into().expect("an id has 16 bytes"));
    let mut report = Report::default();
    for case in FAMILIES.iter().copied().flatten() {
        if let Some(reason) = (case.skip)(&profile) {
            report.skipped.push((case.name, reason.to_owned()));
            continue;
        }
        let ended =
            catch_unwind(AssertUnwindSafe(|| runtime.block_on(run_case(harness, &profile, run, case))));
        match ended {
            Ok(Ok(())) => report.passed.push(case.name),
            Ok(Err(Stop::Skip(reason))) => report.skipped.push((case.name, reason)),
            Ok(Err(Stop::Fail(why))) => report.failed.push((case.name, why)),
            Err(panic) => report.failed.push((case.name, format!("panicked: {}", text_of(&*panic)))),
        }
    }
    report
}

async fn run_case(harness: &dyn Harness, profile: &Profile, run: u64, case: &Case) -> Result<(), Stop> {
    let bench = Bench::new(harness, profile, run, case.name);
    let hung = |_| Stop::Fail(format!("still running after {CASE_LIMIT:?}"));
    let ended = tokio::time::timeout(CASE_LIMIT, (case.run)(&bench)).await.map_err(hung)?;
    let left = tokio::time::timeout(CASE_LIMIT, bench.clean_up()).await.map_err(hung)?;
    ended?;
    if left.is_empty() {
        return Ok(());
    }
    Err(Stop::Fail(format!("left behind: {}", left.join(", "))))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

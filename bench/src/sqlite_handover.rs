//! Two processes acquire one lock in an SQLite file in turns. Measures the time from the sending of the release in one
//! process to the grant in the other. This time is compared with the time from a bare commit until another process,
//! which the commit wakes, has read the change.

use std::{path::Path, time::Duration};

use leasehold_core::Env;
use leasehold_sql::sqlite::engine;

use crate::{
    Failure, child,
    comparison::Comparison,
    handover::handover_time,
    sqlite_bare,
    stamped::{Turns, take_turns},
};

const TURNS: usize = 100;
/// How long a process holds the lock: long enough that the other process, whose claim takes a commit, waits for the
/// lock when the hold ends.
const HOLD: Duration = Duration::from_millis(5);
/// How long a process pauses after a release: long enough that the grant has arrived at the other process.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let (bare, path) = (dir.path().join("bare.db"), dir.path().join("locks.db"));
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        Comparison::new(unit)
            .rounds(11)
            .candidate("bare commit -> seen", || sqlite_bare::commit_notice_time(&bare, fraction))
            .candidate("leasehold, from the release that leaves", || handovers("thread", &path, fraction))
            .candidate("the same, keeper on the caller's runtime", || {
                handovers("on_runtime", &path, fraction)
            })
            .run()?;
    }
    Ok(())
}

/// The quantile at `fraction` of the times between release and grant, in microseconds.
fn handovers(keeper: &str, path: &Path, fraction: f64) -> Result<f64, Failure> {
    let start = || child::start(&["sqlite-handover", keeper, &path.display().to_string()]);
    handover_time([start()?, start()?], TURNS, fraction)
}

/// Acquires and releases the lock repeatedly. Prints when each hold was granted, and when its release was sent.
pub(crate) fn child(keeper: &str, path: &str) -> Result<(), Failure> {
    let engine = engine(Path::new(path), &Env::system())?;
    take_turns(engine, keeper, "sent", Turns { count: TURNS, hold: HOLD, pause: PAUSE })
}

//! All engines side by side, in one run and in turns: what a newcomer compares when choosing an engine. Prints a table
//! in Markdown, and writes it to `target/engines/table.md`, and the text of a chart to `target/engines/chart.txt`. With
//! that text as `docs/pictures/engines.txt`, `cargo xtask pictures` draws the chart.

mod costs;
mod first;
mod outages;
mod rates;
mod report;
mod rig;

use std::time::Duration;

pub(crate) use outages::hold_until_killed;

use crate::Failure;
use report::Report;
use rig::Rig;

/// How long and how often the bench measures. A part begins no further round when its time is over.
pub(crate) struct Extent {
    /// The most rounds of a part whose measurements are short: rates, and the times of an acquire.
    short_rounds: usize,
    /// The most rounds of a part whose measurements take seconds.
    long_rounds: usize,
    /// How long one measurement of free names takes.
    slice: Duration,
    /// How long the rounds of one part may take.
    part: Duration,
    /// How often each of two processes holds the lock in one measurement of a hand-over.
    turns: usize,
    /// The number of pairs whose commands and bytes are counted.
    counted_pairs: u32,
}

/// A run of about ten minutes: twelve parts of at most 55 s, and the starts of the servers.
const FULL: Extent = Extent {
    short_rounds: 15,
    long_rounds: 7,
    slice: Duration::from_millis(300),
    part: Duration::from_secs(55),
    turns: 60,
    counted_pairs: 1_000,
};

const BRIEF: Extent = Extent {
    short_rounds: 1,
    long_rounds: 1,
    slice: Duration::from_millis(100),
    part: Duration::from_secs(5),
    turns: 10,
    counted_pairs: 50,
};

pub(crate) fn bench() -> Result<(), Failure> {
    run(&FULL)
}

pub(crate) fn brief() -> Result<(), Failure> {
    run(&BRIEF)
}

fn run(extent: &Extent) -> Result<(), Failure> {
    let mut rigs = Rig::all()?;
    let mut report = Report::new(rigs.iter().map(|rig| rig.name).collect());
    rates::measure(&rigs, extent, &mut report)?;
    costs::measure(&rigs, extent, &mut report)?;
    first::measure(&rigs, extent, &mut report)?;
    outages::measure(&mut rigs, extent, &mut report)?;
    report.print()
}

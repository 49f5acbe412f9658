//! How often a second names are acquired and released, how long a hand-over takes, and how long the acquire of a free
//! name takes under load.

use std::time::{Duration, Instant};

use leasehold::Locks;
use tokio::runtime::Runtime;

use super::{Extent, report::Report, rig::Rig};
use crate::{
    Failure,
    comparison::{Comparison, in_turns, quantile, three_digits},
    handover::{children, handover_times},
    one_name::{beside_busy, together},
    pairs::pairs,
    stamped::Turns,
};

/// How long a process holds the lock, and how long it pauses after a release. A hold takes several times as long as a
/// write to the disk, so that the other process waits for the lock when the hold ends.
const HOLD: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(10);
/// The number of rounds before the measurement of free names begins.
const WARM_UP: usize = 3;

pub(crate) fn measure(rigs: &[Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = rigs.iter().map(Rig::locks).collect::<Result<Vec<_>, _>>()?;
    for tasks in [1, 16, 64] {
        println!("  free names, {tasks} tasks");
        let one = |index: usize| {
            let rig: &Rig = &rigs[index];
            rig.prepare(&runtime)?;
            pairs(&runtime, extent.slice, tasks, &locks[index])
        };
        // Rounds without a measurement: tables are made, and ZooKeeper's client finds its number of sessions.
        in_turns(rigs.len(), WARM_UP, extent.part, |index| one(index).map(drop))?;
        let medians = compare("pairs/s", rigs, extent.short_rounds, extent, one)?;
        let what = format!("free names, {tasks} task{}: pairs/s", if tasks == 1 { "" } else { "s" });
        report.row_with_chart(&what, &medians);
    }
    for tasks in [1, 8] {
        println!("  one name, 2 processes with {tasks} tasks each");
        let one = |index: usize| {
            let rig: &Rig = &rigs[index];
            rig.prepare(&runtime)?;
            Ok(together(&rig.url(), 2, tasks)?.0)
        };
        let medians = compare("sections/s", rigs, extent.long_rounds, extent, one)?;
        report.row_with_chart(&format!("one name, 2 processes x {tasks}: sections/s"), &medians);
    }
    handovers(rigs, extent, report)?;
    println!("  acquire of a free name beside a process with 64 busy tasks, a name each");
    let one = |index: usize| {
        let rig: &Rig = &rigs[index];
        rig.prepare(&runtime)?;
        beside_busy(&["busy-names", &rig.url()], || acquire_time(&runtime, &locks[index], extent.slice * 3))
    };
    let medians = compare("ms, p99", rigs, extent.long_rounds, extent, one)?;
    report.row_with_chart("acquire of a free name beside 64 busy tasks, p99: ms", &medians);
    Ok(())
}

/// The median figure of each rig.
fn compare<'a>(
    unit: &'static str,
    rigs: &[Rig],
    rounds: usize,
    extent: &Extent,
    one: impl Fn(usize) -> Result<f64, Failure> + Copy + 'a,
) -> Result<Vec<f64>, Failure> {
    let mut comparison = Comparison::new(unit).rounds(rounds).within(extent.part);
    for (index, rig) in rigs.iter().enumerate() {
        comparison = comparison.candidate(rig.name, move || one(index));
    }
    comparison.run_for_medians()
}

fn handovers(rigs: &[Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    println!("  hand-over between two processes, from before the drop of the guard to the grant");
    let turns = Turns { count: extent.turns, hold: HOLD, pause: PAUSE };
    let mut times = vec![Vec::new(); rigs.len()];
    let rounds = in_turns(rigs.len(), extent.long_rounds, extent.part, |index| {
        let children = children("leasehold", &rigs[index].url(), &turns)?;
        // A Redlock has no queue, so the same process sometimes acquires the lock again.
        times[index].extend(handover_times(children, extent.turns / 4)?);
        Ok(())
    })?;
    for (rig, times) in rigs.iter().zip(&mut times) {
        let (count, middle, late) = (times.len(), quantile(times, 0.5) / 1e3, quantile(times, 0.99) / 1e3);
        println!(
            "  {:44} p50 {} ms, p99 {} ms ({count} in {rounds} rounds)",
            rig.name,
            three_digits(middle),
            three_digits(late)
        );
    }
    for (what, fraction) in [("p50", 0.5), ("p99", 0.99)] {
        let figures: Vec<f64> = times.iter_mut().map(|times| quantile(times, fraction) / 1e3).collect();
        report.row_with_chart(&format!("hand-over between two processes, {what}: ms"), &figures);
    }
    Ok(())
}

/// The 99th percentile of the times that an acquire of a free name takes, in milliseconds.
fn acquire_time(runtime: &Runtime, locks: &Locks, measurement_time: Duration) -> Result<f64, Failure> {
    let request = locks.mutex("quiet");
    runtime.block_on(async {
        let (begin, mut times) = (Instant::now(), Vec::new());
        while begin.elapsed() < measurement_time {
            let asked = Instant::now();
            let guard = request.acquire().await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            guard.release().await?;
        }
        Ok(quantile(&mut times, 0.99))
    })
}

//! The simulation over seeds that were never run, and the line of what came of it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    marks::{bold, grouped, table},
    night::Night,
};

/// Each day has so many seeds of its own: more than a night can run.
const OF_A_DAY: u64 = 100_000_000;
/// How many are run at a time: a few seconds, so that little is lost by an interruption.
const BATCH: u64 = 5_000;
const LOG: &str = "simulation";

/// Runs the seeds of this day for this long. It begins with the first seed that this night has not run yet.
pub(super) fn run(night: &Night<'_>, time: Duration) -> Result<(), String> {
    let (begin, mut failed) = (Instant::now(), 0);
    while begin.elapsed() < time {
        let from = night.day() * OF_A_DAY + Sums::read(&night.log(LOG)).seeds;
        let mut batch = night.program("leasehold-sim");
        batch.args(["--seeds", &BATCH.to_string(), "--from", &from.to_string()]);
        let before = Sums::read(&night.log(LOG)).seeds;
        let ended = night.tell(LOG, &mut batch);
        if Sums::read(&night.log(LOG)).seeds == before {
            return ended.and(Err("it ran no seed".to_owned()));
        }
        failed += u32::from(ended.is_err());
    }
    if failed == 0 { Ok(()) } else { Err(format!("seeds of {failed} runs violated something")) }
}

/// The table of docs/proof.md.
pub(super) fn page(night: &Night<'_>) -> String {
    let titles = [
        "seeds",
        "simulated",
        "operations checked",
        "grants",
        "holds told lost",
        "faults",
        "fenced updates lost",
        "unfenced updates lost",
        "violations",
    ];
    table(&titles, [Sums::read(&night.log(LOG)).row()])
}

/// What all batches of a night came to.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    seeds: u64,
    hours: f64,
    checked: u64,
    grants: u64,
    losses: u64,
    faults: u64,
    kinds: BTreeSet<String>,
    /// Lost, and acknowledged.
    fenced: (u64, u64),
    unfenced: (u64, u64),
    violations: u64,
}

impl Sums {
    /// Adds up what the simulation prints: a name, and a figure from the 29th character on.
    fn read(log: &str) -> Self {
        let (mut sums, mut of_faults) = (Self::default(), false);
        for line in log.lines() {
            let Some((name, figure)) = line.split_at_checked(28) else { continue };
            let number = || figure.trim().parse::<u64>().unwrap_or(0);
            let updates = |(lost, all): (u64, u64)| {
                let mut counts =
                    figure.split(',').filter_map(|part| part.trim().split(' ').next()?.parse().ok());
                (all + counts.next().unwrap_or(0), lost + counts.next().unwrap_or(0))
            };
            let is_kind = of_faults && name.starts_with("  ");
            of_faults = is_kind || name.trim() == "faults";
            match name.trim_end() {
                kind if is_kind => drop(sums.kinds.insert(kind.trim().to_owned())),
                "seeds" => sums.seeds += number(),
                "simulated hours" => sums.hours += figure.trim().parse().unwrap_or(0.0),
                "operations checked" => sums.checked += number(),
                "grants" => sums.grants += number(),
                "holds told lost" => sums.losses += number(),
                "faults" => sums.faults += number(),
                "fenced updates" => (sums.fenced.1, sums.fenced.0) = updates(sums.fenced),
                "unfenced updates" => (sums.unfenced.1, sums.unfenced.0) = updates(sums.unfenced),
                "violations" => sums.violations += number(),
                _ => {}
            }
        }
        sums
    }

    fn row(&self) -> [String; 9] {
        [
            grouped(self.seeds),
            format!("{:.1} h", self.hours),
            grouped(self.checked),
            grouped(self.grants),
            grouped(self.losses),
            format!("{}, of {} kinds", grouped(self.faults), self.kinds.len()),
            format!("{} of {}", bold(&grouped(self.fenced.0)), grouped(self.fenced.1)),
            format!("{} of {}", grouped(self.unfenced.0), grouped(self.unfenced.1)),
            bold(&grouped(self.violations)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "
seeds                        20000
simulated hours              198.5
operations checked           17800000
grants                       455000
  handed on in a process     12
holds told lost              37000
faults                       99000
  client stopped             500
  reply lost                 98500
fenced updates               176000 acknowledged, 0 lost, 12 refused
unfenced updates             173000 acknowledged, 424 lost, 0 refused
seeds beyond the promise     3
violations                   0
";

    #[test]
    fn batches_add_up() {
        let sums = Sums::read(&SAID.repeat(2));
        assert_eq!((sums.seeds, sums.hours, sums.grants, sums.losses), (40_000, 397.0, 910_000, 74_000));
        assert_eq!((sums.fenced, sums.unfenced, sums.violations), ((0, 352_000), (848, 346_000), 0));
        let row = sums.row();
        assert_eq!((&*row[5], &*row[6]), ("198,000, of 2 kinds", "**0** of 352,000"));
    }
}

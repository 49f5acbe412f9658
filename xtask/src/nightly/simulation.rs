//! Runs the simulation with seeds that were never run, and prints the results of this night and of all nights.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{self, Write},
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    markdown::{bold, grouped, table},
    night::Night,
};

/// The number of seeds that are reserved for a day. It is larger than the number that a night can run.
const SEEDS_PER_DAY: u64 = 100_000_000;
/// The number of seeds in a batch. A batch takes a few seconds, so that an interruption loses little work.
const SEEDS_PER_BATCH: u64 = 5_000;
const LOG: &str = "simulation";
/// The log of all nights. It stays when a new night starts.
const ALL_NIGHTS_LOG: &str = "simulation.log";

/// Runs seeds of this day for this long. The first of them is the first seed that no night has run.
pub(super) fn run(night: &Night<'_>, time: Duration) -> Result<(), String> {
    let jobs = thread::available_parallelism().map_or(1, usize::from).to_string();
    let batch = |from: u64| {
        let mut batch = night.optimised_program("leasehold-sim");
        batch.args(["--seeds", &SEEDS_PER_BATCH.to_string(), "--from", &from.to_string(), "--jobs", &jobs]);
        batch
    };
    let (begin, mut failed) = (Instant::now(), 0);
    while begin.elapsed() < time {
        failed += u32::from(!run_batch(night, batch)?);
    }
    if failed == 0 { Ok(()) } else { Err(format!("seeds of {failed} runs violated something")) }
}

/// Runs one batch, and adds its output to the logs. Returns true if the batch found no violation.
fn run_batch(night: &Night<'_>, batch: impl FnOnce(u64) -> Command) -> Result<bool, String> {
    let from = Sums::read(&output_of_all_nights(night)).next_seed(night.day());
    let length_before = night.log(LOG).len();
    let result = night.run_logged(LOG, &mut batch(from));
    let output = night.log(LOG).split_off(length_before);
    if Sums::read(&output).seeds == 0 {
        return result.and(Err("it ran no seed".to_owned()));
    }
    append(night, from, &output).map_err(|error| format!("{}: {error}", all_nights_log(night).display()))?;
    Ok(result.is_ok())
}

fn append(night: &Night<'_>, from: u64, output: &str) -> io::Result<()> {
    let mut log = OpenOptions::new().create(true).append(true).open(all_nights_log(night))?;
    // The text is written in one call, so that an interruption cannot leave half of it.
    log.write_all(format!("{:<28} {from}\n{output}", "from").as_bytes())
}

fn all_nights_log(night: &Night<'_>) -> PathBuf {
    night.dir().join(ALL_NIGHTS_LOG)
}

fn output_of_all_nights(night: &Night<'_>) -> String {
    std::fs::read_to_string(all_nights_log(night)).unwrap_or_default()
}

/// The figures as the table of docs/proof.md, and the seeds with a violation.
pub(super) fn page(night: &Night<'_>) -> String {
    let titles = [
        "",
        "seeds",
        "simulated",
        "operations checked",
        "grants",
        "holds reported lost",
        "faults",
        "fenced updates lost",
        "unfenced updates lost",
        "violations",
    ];
    let (this, all) = (Sums::read(&night.log(LOG)), Sums::read(&output_of_all_nights(night)));
    let violating_seeds: String =
        all.violating_seeds.iter().map(|seeds| format!("\nSeeds that violated: {seeds}\n")).collect();
    let days = format!("{} nights", all.days.len());
    table(&titles, [this.row("this night"), all.row(&days)]) + &violating_seeds
}

/// The sums of the figures of all batches.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    /// The first seed of the last batch, and the number of seeds in this batch.
    last_batch: (u64, u64),
    /// The days whose seeds were run.
    days: BTreeSet<u64>,
    seeds: u64,
    hours: f64,
    checked: u64,
    grants: u64,
    losses: u64,
    faults: u64,
    kinds: BTreeSet<String>,
    /// The number of lost updates, and the number of acknowledged updates.
    fenced: (u64, u64),
    unfenced: (u64, u64),
    violations: u64,
    /// The seeds with a violation, as the simulation prints them.
    violating_seeds: Vec<String>,
}

impl Sums {
    /// Adds up the figures in the output of the simulation. Each line has a name, and from the 29th character on a
    /// figure.
    fn read(log: &str) -> Self {
        let (mut sums, mut in_faults) = (Self::default(), false);
        for line in log.lines() {
            if let Some(seeds) = line.strip_prefix("seeds that violated: ") {
                sums.violating_seeds.push(seeds.split(';').next().unwrap_or(seeds).to_owned());
            }
            let Some((name, figure)) = line.split_at_checked(28) else { continue };
            let is_kind = in_faults && name.starts_with("  ");
            in_faults = is_kind || name.trim() == "faults";
            if is_kind {
                sums.kinds.insert(name.trim().to_owned());
            } else {
                sums.add(name.trim_end(), figure.trim());
            }
        }
        sums
    }

    fn add(&mut self, name: &str, figure: &str) {
        let number = figure.parse::<u64>().unwrap_or(0);
        let updates = |(lost, all): (u64, u64)| {
            let mut counts = figure.split(',').filter_map(|part| part.trim().split(' ').next()?.parse().ok());
            (all + counts.next().unwrap_or(0), lost + counts.next().unwrap_or(0))
        };
        match name {
            "from" => {
                self.last_batch = (number, 0);
                self.days.insert(number / SEEDS_PER_DAY);
            }
            "seeds" => {
                self.last_batch.1 += number;
                self.seeds += number;
            }
            "simulated hours" => self.hours += figure.parse().unwrap_or(0.0),
            "operations checked" => self.checked += number,
            "grants" => self.grants += number,
            "holds reported lost" => self.losses += number,
            "faults" => self.faults += number,
            "fenced updates" => (self.fenced.1, self.fenced.0) = updates(self.fenced),
            "unfenced updates" => (self.unfenced.1, self.unfenced.0) = updates(self.unfenced),
            "violations" => self.violations += number,
            _ => {}
        }
    }

    /// The first seed of a day that no night has run.
    fn next_seed(&self, day: u64) -> u64 {
        let next = self.last_batch.0 + self.last_batch.1;
        if self.days.contains(&day) { next } else { day * SEEDS_PER_DAY }
    }

    fn row(&self, title: &str) -> [String; 10] {
        [
            title.to_owned(),
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
    use crate::workspace::Workspace;

    const OUTPUT: &str = "
seeds                        20000
simulated hours              198.5
operations checked           17800000
grants                       455000
  handed on in a process     12
holds reported lost          37000
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
        let sums = Sums::read(&OUTPUT.repeat(2));
        assert_eq!((sums.seeds, sums.hours, sums.grants, sums.losses), (40_000, 397.0, 910_000, 74_000));
        assert_eq!((sums.fenced, sums.unfenced, sums.violations), ((0, 352_000), (848, 346_000), 0));
        let row = sums.row("this night");
        assert_eq!((&*row[6], &*row[7]), ("198,000, of 2 kinds", "**0** of 352,000"));
    }

    /// This also holds with `--fresh`, and after a batch that found a violation.
    #[test]
    fn nights_add_up_and_no_seed_is_run_twice() {
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: Vec::new() };
        let dir = std::env::temp_dir().join(format!("xtask-simulation-{}", std::process::id()));
        let mut first_seeds = Vec::new();
        let mut night_of = |day: u64, violating_seeds: &str| {
            let night = Night::open(&workspace, dir.clone(), day * 86_400, true).unwrap();
            for found in ["", violating_seeds] {
                let ended = run_batch(&night, |from| {
                    first_seeds.push(from);
                    let mut output = Command::new("sh");
                    output.args(["-c", "printf '%s' \"$SAID\"; test -z \"$FOUND\""]);
                    output.env("SAID", format!("{OUTPUT}{found}")).env("FOUND", found);
                    output
                });
                assert_eq!(ended, Ok(found.is_empty()));
            }
            page(&night)
        };
        night_of(3, "");
        night_of(3, "seeds that violated: [300040007]; `--replay SEED` replays one of them\n");
        let page = night_of(5, "");
        assert_eq!(
            first_seeds,
            [300_000_000, 300_020_000, 300_040_000, 300_060_000, 500_000_000, 500_020_000]
        );
        assert!(page.contains("| this night | 40,000 | 397.0 h |"), "{page}");
        assert!(page.contains("| 2 nights | 120,000 | 1191.0 h |"), "{page}");
        assert!(page.contains("\nSeeds that violated: [300040007]\n"), "{page}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}

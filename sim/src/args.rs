//! The command line of the simulation.

use leasehold_sim::{Bug, Plan};

const USAGE: &str =
    "usage: leasehold-sim [--seeds N] [--from SEED] [--jobs N] [--ops N] [--bug NAME] [--replay SEED]

  --seeds N      run so many seeds (1000)
  --from SEED    beginning with this one (1)
  --jobs N       on so many threads (1)
  --ops N        with so many acquisitions each (32)
  --bug NAME     with a mistake in the model, to see it found
  --replay SEED  run one seed, print its events, and reduce it if it violates something";

/// The parsed command line.
pub(crate) struct Args {
    /// The number of seeds.
    pub(crate) seeds: u64,
    /// The first seed.
    pub(crate) from: u64,
    /// The number of threads.
    pub(crate) jobs: u64,
    /// The single seed to run. If its plan fails, the plan is reduced. `None`: many seeds run.
    pub(crate) replay: Option<u64>,
    /// The number of acquisitions in each plan.
    ops: usize,
    /// The deliberate mistake in the model. `None`: there is no mistake.
    bug: Option<Bug>,
}

impl Args {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self { seeds: 1000, from: 1, jobs: 1, replay: None, ops: 32, bug: None };
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value\n\n{USAGE}"))?;
            let invalid = || format!("{option}: {value:?} cannot be\n\n{USAGE}");
            let number = || value.parse::<u64>().map_err(|_| invalid());
            match option.as_str() {
                "--seeds" => args.seeds = number()?,
                "--from" => args.from = number()?,
                "--jobs" => args.jobs = number()?,
                "--ops" => args.ops = usize::try_from(number()?).map_err(|_| invalid())?,
                "--replay" => args.replay = Some(number()?),
                "--bug" => args.bug = Some(Bug::named(&value).ok_or_else(invalid)?),
                _ => return Err(format!("{option} is unknown\n\n{USAGE}")),
            }
        }
        Ok(args)
    }

    /// The plan of a seed.
    pub(crate) fn plan(&self, seed: u64) -> Plan {
        Plan::draw(seed, self.ops, self.bug)
    }
}

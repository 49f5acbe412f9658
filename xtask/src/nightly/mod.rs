//! `cargo xtask nightly [--hours N] [--fresh]`: the tests and measurements that take too long for each change.
//!
//! A night is a list of [`parts`]; each part has a share of the hours. If the work of a part does not fit into its
//! share, the next night continues it where it stopped ([`circle`]). The progress is stored in `target/nightly`. A
//! night that was interrupted continues where it stopped; a new night begins if the last one is complete, or with
//! `--fresh`. If a part fails, the other parts run all the same. At the end, the figures are printed as the tables of
//! the documentation.

mod bench;
mod cargo_fuzz;
mod circle;
mod command;
mod fault_runs;
mod fuzz;
mod markdown;
mod night;
mod parts;
mod proof;
mod servers;
mod simulation;

use std::{fs, time::Duration};

use self::{
    night::Night,
    parts::{PARTS, Part},
};
use crate::{
    run::{Failure, Steps},
    workspace::Workspace,
};

/// The default length of a night, in hours.
const HOURS: f64 = 8.0;
const USAGE: &str = "usage: cargo xtask nightly [--hours N] [--fresh]";

/// The parsed arguments.
#[derive(Debug, PartialEq)]
struct Arguments {
    hours: f64,
    fresh: bool,
}

/// Runs the parts of this night that have not run yet.
pub(crate) fn run(steps: &mut Steps, workspace: &Workspace, words: &[&str]) -> Result<(), Failure> {
    let arguments = Arguments::read(words).map_err(|reason| Failure::new("read the arguments", reason))?;
    let mut night =
        steps.step("read the progress of this night", || Night::find(workspace, arguments.fresh))?;
    for part in &PARTS {
        if let Some(failure) = night.result_of(part.name) {
            println!("-- {}: done before{}", part.name, if failure.is_some() { ", it failed" } else { "" });
            continue;
        }
        let share = Duration::from_secs_f64(arguments.hours * 36.0 * part.share);
        println!("== {}: {:.1} min, {}", part.name, share.as_secs_f64() / 60.0, part.why);
        let failure = part.run(steps, &night, share).err();
        if let Some(reason) = &failure {
            eprintln!("xtask: {} failed: {reason}", part.name);
        }
        let recorded = night.record_result(part.name, failure);
        recorded.map_err(|reason| Failure::new("store the progress", reason))?;
    }
    let tables = [("proof.md", proof::page(&night)), ("benchmarks.md", bench::page(&night))];
    for (file, page) in tables {
        println!("\n{page}");
        let written = fs::write(night.dir().join(file), page);
        written.map_err(|error| Failure::new("write the tables", error))?;
    }
    night.complete().map_err(|reason| Failure::new("store the progress", reason))?;
    verdict(&night)
}

/// The names of the parts that failed.
fn verdict(night: &Night<'_>) -> Result<(), Failure> {
    let failed = |part: &&Part| night.result_of(part.name).flatten().is_some();
    let names: Vec<&str> = PARTS.iter().filter(failed).map(|part| part.name).collect();
    if names.is_empty() { Ok(()) } else { Err(Failure::new("nightly", names.join("; "))) }
}

impl Arguments {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut arguments = Self { hours: HOURS, fresh: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--fresh" => arguments.fresh = true,
                "--hours" => {
                    let hours = words.next().and_then(|hours| hours.parse().ok());
                    arguments.hours =
                        hours.filter(|hours: &f64| hours.is_finite() && *hours > 0.0).ok_or(USAGE)?;
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_fresh_are_parsed() {
        assert_eq!(Arguments::read(&[]), Ok(Arguments { hours: HOURS, fresh: false }));
        assert_eq!(
            Arguments::read(&["--hours", "0.5", "--fresh"]),
            Ok(Arguments { hours: 0.5, fresh: true })
        );
        for bad in [&["--hours"][..], &["--hours", "-1"], &["--hours", "x"], &["redis"]] {
            assert_eq!(Arguments::read(bad), Err(USAGE.to_owned()), "{bad:?}");
        }
    }
}

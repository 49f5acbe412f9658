//! Mutants, as many as fit into the time: from where the last night ended, in a circle.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::night::Night;
use crate::{
    mutants,
    run::{Failure, Steps},
};

/// How many are run at a time: their killers are built and run without them once for all.
const BATCH: usize = 6;
/// Where it is kept which are next: it outlives the night.
const KEPT: &str = "mutants.json";

/// Runs mutants until the time is up or each was run in this night. The batch that has begun is ended.
pub(super) fn run(steps: &mut Steps, night: &Night<'_>, time: Duration) -> Result<(), Failure> {
    let failed = |reason: String| Failure::new("mutants", reason);
    let all = all(&night.workspace.root.join("mutants")).map_err(failed)?;
    let path = night.dir().join(KEPT);
    let mut round = Round::read(&fs::read_to_string(&path).unwrap_or_default(), night.begun());
    let begin = Instant::now();
    while begin.elapsed() < time {
        let batch = round.batch(&all);
        if batch.is_empty() {
            break;
        }
        if let Err(failure) = mutants::gate(steps, night.workspace, &batch) {
            eprintln!("xtask: {failure}");
            round.complaints.push(failure.to_string());
        }
        round.next = batch.last().and_then(|last| following(&all, last)).cloned();
        round.tonight.extend(batch.into_iter().map(str::to_owned));
        fs::write(&path, round.kept()).map_err(|error| failed(error.to_string()))?;
    }
    println!("mutants: {} of {} in this night", round.tonight.len(), all.len());
    if round.complaints.is_empty() { Ok(()) } else { Err(failed(round.complaints.join("; "))) }
}

/// The names of all mutants, in order.
fn all(dir: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let patches = paths.filter(|path| path.extension().is_some_and(|it| it == "patch"));
    let mut names: Vec<String> =
        patches.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

fn following<'a>(all: &'a [String], name: &str) -> Option<&'a String> {
    let at = all.iter().position(|other| other == name)?;
    all.get(at + 1).or_else(|| all.first())
}

/// What was run of the circle.
#[derive(Debug, Default, PartialEq)]
struct Round {
    /// In seconds since 1970: which night the rest is of.
    night: u64,
    /// With which to go on.
    next: Option<String>,
    tonight: Vec<String>,
    complaints: Vec<String>,
}

impl Round {
    /// Of another night only what is next counts.
    fn read(kept: &str, night: u64) -> Self {
        let kept: Value = serde_json::from_str(kept).unwrap_or_default();
        let next = kept["next"].as_str().map(str::to_owned);
        if kept["night"] != night {
            return Self { night, next, ..Self::default() };
        }
        let list = |key: &str| -> Vec<String> {
            let names = kept[key].as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        Self { night, next, tonight: list("tonight"), complaints: list("complaints") }
    }

    fn kept(&self) -> String {
        let Self { night, next, tonight, complaints } = self;
        json!({ "night": night, "next": next, "tonight": tonight, "complaints": complaints }).to_string()
    }

    /// The next ones that this night has not run.
    fn batch<'a>(&self, all: &'a [String]) -> Vec<&'a str> {
        let first = all.iter().position(|name| Some(name) == self.next.as_ref()).unwrap_or(0);
        let (before, after) = all.split_at(first);
        let left = after.iter().chain(before).filter(|name| !self.tonight.contains(name));
        left.take(BATCH).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_goes_on_where_the_last_ended_and_runs_each_once() {
        let all: Vec<String> = (0..8).map(|number| format!("{number}-x")).collect();
        let mut round = Round { night: 1, next: Some("5-x".to_owned()), ..Round::default() };
        assert_eq!(round.batch(&all), ["5-x", "6-x", "7-x", "0-x", "1-x", "2-x"]);
        round.tonight = round.batch(&all).into_iter().map(str::to_owned).collect();
        round.next = following(&all, "2-x").cloned();
        assert_eq!(round.batch(&all), ["3-x", "4-x"]);
        assert_eq!(Round::read(&round.kept(), 1), round, "interrupted");
        let other = Round::read(&round.kept(), 2);
        assert_eq!((other.tonight.len(), other.next.as_deref()), (0, Some("3-x")), "the next night");
        assert_eq!(following(&all, "7-x").map(String::as_str), Some("0-x"));
        round.tonight.clone_from(&all);
        assert!(round.batch(&all).is_empty());
    }
}

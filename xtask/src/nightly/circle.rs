//! Divides work into pieces, and does as many pieces as fit into the time. Each night continues after the last piece of
//! the previous night; after the last piece of all comes the first.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::night::Night;
use crate::run::Failure;

/// The pieces of a part's work.
pub(super) struct Circle<'a> {
    /// The name of the part. Under this name the next piece is stored for later nights.
    pub(super) part: &'a str,
    /// The names of all pieces, in order.
    pub(super) pieces: &'a [String],
    /// The number of pieces in one batch.
    pub(super) batch: usize,
}

impl Circle<'_> {
    /// Does batches until the time is over or this night has done every piece. A batch that has begun is completed. If
    /// a batch fails, the other batches are done all the same.
    pub(super) fn run<E: ToString>(
        &self,
        night: &Night<'_>,
        time: Duration,
        mut work: impl FnMut(&[&str]) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let failed = |reason: String| Failure::new(self.part, reason);
        let path = night.dir().join(self.part.replace(' ', "-") + ".json");
        let mut progress = Progress::read(&fs::read_to_string(&path).unwrap_or_default(), night.started());
        let begin = Instant::now();
        while begin.elapsed() < time {
            let batch = progress.batch(self.pieces, self.batch);
            if batch.is_empty() {
                break;
            }
            if let Err(failure) = work(&batch) {
                let failure = failure.to_string();
                eprintln!("xtask: {failure}");
                progress.complaints.push(failure);
            }
            progress.next = batch.last().and_then(|last| following(self.pieces, last)).cloned();
            progress.done_tonight.extend(batch.into_iter().map(str::to_owned));
            fs::write(&path, progress.to_json()).map_err(|error| failed(error.to_string()))?;
        }
        println!("{}: {} of {} in this night", self.part, progress.done_tonight.len(), self.pieces.len());
        if progress.complaints.is_empty() { Ok(()) } else { Err(failed(progress.complaints.join("; "))) }
    }
}

/// The piece that comes after this one. After the last piece comes the first.
fn following<'a>(all: &'a [String], name: &str) -> Option<&'a String> {
    let index = all.iter().position(|other| other == name)?;
    all.get(index + 1).or_else(|| all.first())
}

/// How far the work of a part has come.
#[derive(Debug, Default, PartialEq)]
struct Progress {
    /// When the night began to which the other fields belong, in seconds since 1970.
    night: u64,
    /// The piece with which the work continues.
    next: Option<String>,
    /// The pieces that were done in this night.
    done_tonight: Vec<String>,
    complaints: Vec<String>,
}

impl Progress {
    /// Parses the stored progress. If it is of an earlier night, only the next piece counts.
    fn read(stored: &str, night: u64) -> Self {
        let stored: Value = serde_json::from_str(stored).unwrap_or_default();
        let next = stored["next"].as_str().map(str::to_owned);
        if stored["night"] != night {
            return Self { night, next, ..Self::default() };
        }
        let list = |key: &str| -> Vec<String> {
            let names = stored[key].as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        Self { night, next, done_tonight: list("tonight"), complaints: list("complaints") }
    }

    /// The progress as JSON.
    fn to_json(&self) -> String {
        let Self { night, next, done_tonight, complaints } = self;
        json!({ "night": night, "next": next, "tonight": done_tonight, "complaints": complaints }).to_string()
    }

    /// The next pieces among those that were not done in this night.
    fn batch<'a>(&self, all: &'a [String], size: usize) -> Vec<&'a str> {
        let first = all.iter().position(|name| Some(name) == self.next.as_ref()).unwrap_or(0);
        let (before, after) = all.split_at(first);
        let left = after.iter().chain(before).filter(|name| !self.done_tonight.contains(name));
        left.take(size).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_continues_where_the_last_ended_and_does_each_piece_once() {
        let all: Vec<String> = (0..8).map(|number| format!("{number}-x")).collect();
        let mut progress = Progress { night: 1, next: Some("5-x".to_owned()), ..Progress::default() };
        assert_eq!(progress.batch(&all, 6), ["5-x", "6-x", "7-x", "0-x", "1-x", "2-x"]);
        progress.done_tonight = progress.batch(&all, 6).into_iter().map(str::to_owned).collect();
        progress.next = following(&all, "2-x").cloned();
        assert_eq!(progress.batch(&all, 6), ["3-x", "4-x"]);
        assert_eq!(Progress::read(&progress.to_json(), 1), progress, "interrupted");
        let other = Progress::read(&progress.to_json(), 2);
        assert_eq!((other.done_tonight.len(), other.next.as_deref()), (0, Some("3-x")), "the next night");
        assert_eq!(following(&all, "7-x").map(String::as_str), Some("0-x"));
        progress.done_tonight.clone_from(&all);
        assert!(progress.batch(&all, 6).is_empty());
    }

    #[test]
    fn a_short_night_does_one_batch_and_a_failure_stops_no_other() {
        let workspace =
            crate::workspace::Workspace { root: "".into(), target: "".into(), packages: Vec::new() };
        let dir = std::env::temp_dir().join(format!("xtask-circle-{}", std::process::id()));
        let night = Night::open(&workspace, dir.clone(), 1, false).unwrap();
        let pieces = ["a", "b", "c"].map(str::to_owned);
        let circle = Circle { part: "some part", pieces: &pieces, batch: 1 };
        let mut done = Vec::new();
        let mut work = |batch: &[&str]| {
            done.push(batch.join(","));
            if batch == ["b"] { Err("b broke") } else { Ok(()) }
        };
        circle.run(&night, Duration::from_nanos(1), &mut work).unwrap();
        let failure = circle.run(&night, Duration::from_secs(60), &mut work).unwrap_err();
        assert_eq!((done.join(" ").as_str(), failure.to_string().contains("b broke")), ("a b c", true));
        fs::remove_dir_all(dir).unwrap();
    }
}

//! The stored progress of a night.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value, json};

use super::command;
use crate::workspace::Workspace;

/// The file with the progress.
const STATE_FILE: &str = "state.json";

/// A night. It is new, or it began earlier and is not complete.
pub(super) struct Night<'w> {
    pub(super) workspace: &'w Workspace,
    dir: PathBuf,
    /// When the night began, in seconds since 1970.
    started: u64,
    /// The finished parts, by name. The value is null, or says why the part failed.
    done: Map<String, Value>,
}

impl<'w> Night<'w> {
    /// Continues the night that was interrupted, or begins a new one.
    pub(super) fn find(workspace: &'w Workspace, fresh: bool) -> Result<Self, String> {
        let dir = workspace.target.join("nightly");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?.as_secs();
        Self::open(workspace, dir, now, fresh).map_err(|error| format!("target/nightly: {error}"))
    }

    pub(super) fn open(workspace: &'w Workspace, dir: PathBuf, now: u64, fresh: bool) -> io::Result<Self> {
        let stored = fs::read(dir.join(STATE_FILE))
            .ok()
            .and_then(|stored| serde_json::from_slice::<Value>(&stored).ok());
        if let Some(stored) = stored.filter(|stored| !fresh && stored["whole"] == false)
            && let (Some(started), Some(done)) = (stored["begun"].as_u64(), stored["done"].as_object())
        {
            println!("it continues: {} parts are done", done.len());
            return Ok(Self { workspace, dir, started, done: done.clone() });
        }
        fs::create_dir_all(&dir)?;
        // The output of the previous night must not be mixed with that of this night.
        for old in ["logs", "torture"] {
            match fs::remove_dir_all(dir.join(old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::create_dir_all(dir.join("logs"))?;
        let night = Self { workspace, dir, started: now, done: Map::new() };
        night.store(false)?;
        Ok(night)
    }

    /// The result of a part. The outer `None`: the part is not finished. The inner `None`: the part did not fail;
    /// otherwise the text says why it failed.
    pub(super) fn result_of(&self, part: &str) -> Option<Option<&str>> {
        self.done.get(part).map(Value::as_str)
    }

    /// Records that a part is finished.
    pub(super) fn record_result(&mut self, part: &str, failure: Option<impl ToString>) -> io::Result<()> {
        let failure = failure.map_or(Value::Null, |failure| failure.to_string().into());
        self.done.insert(part.to_owned(), failure);
        self.store(false)
    }

    /// Records that all parts are finished.
    pub(super) fn complete(&self) -> io::Result<()> {
        self.store(true)
    }

    /// Stores the progress.
    fn store(&self, is_complete: bool) -> io::Result<()> {
        let state = json!({ "begun": self.started, "done": self.done, "whole": is_complete });
        // The file is replaced in one step, because this process may be interrupted at any time.
        let new_file = self.dir.join("state.new");
        fs::write(&new_file, state.to_string())?;
        fs::rename(new_file, self.dir.join(STATE_FILE))
    }

    /// The directory that has the progress and the logs.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// When the night began, in seconds since 1970.
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// The number of days since 1970 at the begin of the night. It makes the seeds of each night different.
    pub(super) fn day(&self) -> u64 {
        self.started / 86_400
    }

    /// The argument of a program that sets its seed. The seed is short enough to be typed.
    pub(super) fn seed_arguments(&self) -> [String; 2] {
        ["--seed".to_owned(), (self.day() * 1000).to_string()]
    }

    /// A command that runs one of our programs, as a release build.
    pub(super) fn program(&self, package: &str) -> Command {
        let mut run = self.workspace.cargo("run");
        run.args(["--quiet", "--release", "--locked", "-p", package, "--"]);
        run
    }

    /// A command that runs one of our programs, with the library as the programs of its users compile it.
    pub(super) fn measured_program(&self, package: &str) -> Command {
        let mut run = self.workspace.cargo("run");
        run.args(["--quiet", "--profile=measure", "--locked", "-p", package, "--"]);
        run
    }

    /// A command that runs one of our programs, built with whole-program optimisation. The build is slower, so this is
    /// for programs that run for long.
    pub(super) fn optimised_program(&self, package: &str) -> Command {
        let mut run = self.workspace.cargo("run");
        run.args(["--quiet", "--profile=search", "--locked", "-p", package, "--"]);
        run
    }

    /// Runs a command, shows its output, and adds it to the log of this name.
    pub(super) fn run_logged(&self, log: &str, command: &mut Command) -> Result<(), String> {
        command::run_logged(command, &self.log_path(log))
    }

    /// What commands of this night have written to the log with this name.
    pub(super) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_continues_until_it_is_complete() {
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: Vec::new() };
        let dir = std::env::temp_dir().join(format!("xtask-night-{}", std::process::id()));
        let at = |now, fresh| Night::open(&workspace, dir.clone(), now, fresh).unwrap();
        let mut night = at(100_000, false);
        night.record_result("a", None::<String>).unwrap();
        night.record_result("b", Some("a reason")).unwrap();
        fs::write(night.log_path("x"), "output").unwrap();

        let night = at(200_000, false);
        assert_eq!((night.started(), night.day()), (100_000, 1), "it is the same");
        assert_eq!(night.result_of("a"), Some(None));
        assert_eq!(night.result_of("b"), Some(Some("a reason")));
        assert_eq!((night.result_of("c"), night.log("x").as_str()), (None, "output"));

        night.complete().unwrap();
        let night = at(300_000, false);
        assert_eq!((night.started(), night.result_of("a"), night.log("x").as_str()), (300_000, None, ""));
        assert_eq!(at(400_000, true).started(), 400_000, "a fresh one");
        fs::remove_dir_all(dir).unwrap();
    }
}

//! One server of a test: its process, and the directory that outlives it.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::Server,
    directory::{copy, remove, scratch},
};

/// A kind of server: how one is started, and how an operator speaks to it.
pub trait Node {
    /// Its process and its directory.
    fn instance(&self) -> &Instance;

    /// The same, to be changed.
    fn instance_mut(&mut self) -> &mut Instance;

    /// Where its clients come in.
    fn port(&self) -> u16;

    /// Starts it, again if it runs, with the data that it has.
    fn start(&mut self);

    /// Waits until it does what clients ask for.
    fn wait_until_serving(&mut self);

    /// Runs the operator's command, and answers what it said, line by line; panics when it says that something is wrong.
    fn command(&self, words: &[&str]) -> Vec<String>;
}

/// A process that may run or not, and the directory in which it runs.
pub struct Instance {
    process: Option<Server>,
    directory: TempDir,
}

impl Instance {
    /// One that does not run yet.
    pub(super) fn new() -> Self {
        Self { process: None, directory: scratch() }
    }

    /// Its own directory, in which it runs.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a program, in the place of the one that runs.
    pub(super) fn start(&mut self, program: &str, arguments: &[String], environment: &[(&str, String)]) {
        self.kill();
        self.process = Some(Server::start(program, self.directory.path(), arguments, environment));
    }

    /// Waits until this is so. It fails when the process ends before.
    pub(super) fn wait_until(&mut self, ready: impl Fn() -> bool) {
        self.process.as_mut().expect("the server is running").wait_until(ready);
    }

    pub(super) const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Sends a signal to it.
    pub(super) fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("the server is running").signal(signal);
    }

    /// Kills it, if it runs.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it in order, so that it saves what it is to save.
    pub(super) fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }

    /// Kills it and throws its data away.
    pub(super) fn forget(&mut self) {
        self.kill();
        remove(&self.data());
    }

    /// Kills it and keeps a copy of its data: nobody writes while it is made.
    pub(super) fn save(&mut self) {
        self.kill();
        remove(&self.saved());
        copy(&self.data(), &self.saved());
    }

    /// Kills it and puts the copy in the place of its data.
    pub(super) fn restore(&mut self) {
        self.forget();
        copy(&self.saved(), &self.data());
    }

    /// Where a server with a directory of data has it.
    pub(super) fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    fn saved(&self) -> PathBuf {
        self.directory().join("saved")
    }
}

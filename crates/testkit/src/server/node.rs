//! One server of a test: its process, and the directory that outlives the process.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::Server,
    directory::{copy, remove, scratch},
};

/// A kind of server: how to start and command it.
pub trait Node {
    /// The process and its directory.
    fn instance(&self) -> &Instance;

    /// The process and its directory, mutable.
    fn instance_mut(&mut self) -> &mut Instance;

    /// The port for clients.
    fn port(&self) -> u16;

    /// Starts the server with its data. A running server is killed first.
    fn start(&mut self);

    /// Waits until the server serves clients.
    fn wait_until_serving(&mut self);

    /// Runs a command of the operator's tool (such as `redis-cli`) and returns the lines of its output. Panics if the
    /// command fails.
    fn command(&self, words: &[&str]) -> Vec<String>;
}

/// A process, which may or may not run, and its directory.
pub struct Instance {
    process: Option<Server>,
    directory: TempDir,
}

impl Instance {
    /// A server that is not started yet.
    pub(super) fn new() -> Self {
        Self { process: None, directory: scratch() }
    }

    /// The directory in which the server runs.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a program. If the process runs, it is killed first.
    pub(super) fn start(&mut self, program: &str, arguments: &[String], environment: &[(&str, String)]) {
        self.kill();
        self.process = Some(Server::start(program, self.directory.path(), arguments, environment));
    }

    /// Waits until `ready` returns true. Fails if the process ends first.
    pub(super) fn wait_until(&mut self, ready: impl Fn() -> bool) {
        self.process.as_mut().expect("the server is running").wait_until(ready);
    }

    pub(super) const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("the server is running").signal(signal);
    }

    /// Kills the process if it runs.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts the process down cleanly, so that it saves its data.
    pub(super) fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }

    /// Kills the process and deletes its data.
    pub(super) fn forget(&mut self) {
        self.kill();
        remove(&self.data());
    }

    /// Kills the process and then copies its data, so that nothing writes to the data meanwhile.
    pub(super) fn save(&mut self) {
        self.kill();
        remove(&self.saved());
        copy(&self.data(), &self.saved());
    }

    /// Kills the process and replaces its data with the copy that `save` made.
    pub(super) fn restore(&mut self) {
        self.forget();
        copy(&self.saved(), &self.data());
    }

    /// The data directory, for servers that have one.
    pub(super) fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    /// The directory of the copy that `save` makes.
    fn saved(&self) -> PathBuf {
        self.directory().join("saved")
    }
}

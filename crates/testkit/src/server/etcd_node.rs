//! One process of etcd, with its ports and its data.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    directory::{copy, remove, scratch},
    system,
};

/// How long one question may take: a server that is short of a leader answers within a second.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// One process of etcd.
pub(super) struct Node {
    process: Option<Server>,
    directory: TempDir,
    /// Where its clients come in.
    pub(super) port: u16,
    /// Where its peers come in.
    pub(super) peer_port: u16,
    /// Where it tells of its health, without encryption.
    pub(super) health_port: u16,
    /// What its owner wants beside directory, ports and log.
    pub(super) arguments: Vec<String>,
}

impl Node {
    /// One that does not run yet.
    pub(super) fn new() -> Self {
        let port = free_port();
        Self {
            process: None,
            directory: scratch(),
            port,
            peer_port: free_port(),
            health_port: port,
            arguments: Vec::new(),
        }
    }

    /// Its own directory, in which it runs.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts it, with the data that it has.
    pub(super) fn start(&mut self) {
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let own = ["--data-dir", "data", "--logger=zap", "--log-level=error", "--listen-peer-urls", &peers];
        let all: Vec<String> =
            own.into_iter().map(str::to_owned).chain(self.arguments.iter().cloned()).collect();
        self.kill();
        let program = system::program("etcd").unwrap_or_else(|| "etcd".to_owned());
        self.process = Some(Server::start(&program, self.directory.path(), &all, &[]));
    }

    /// Waits until it takes writes.
    pub(super) fn wait_until_healthy(&mut self) {
        let health = self.health_port;
        let healthy =
            || ask(health, "GET /health").is_some_and(|answer| answer.contains(r#""health":"true""#));
        self.process.as_mut().expect("the server is running").wait_until(healthy);
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

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn saved(&self) -> PathBuf {
        self.directory.path().join("saved")
    }
}

/// What a server answers to a request without encryption, such as `GET /health`; `None` when it does not.
pub(super) fn ask(port: u16, request: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    // Its gateway wants an object; by this version of HTTP the answer ends with the connection.
    write!(stream, "{request} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The operator's command, for a server of this machine.
pub(super) fn etcdctl(endpoint: &str) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]);
    // By itself it gives a server two seconds, which a busy machine may not have.
    command.args(["--dial-timeout=30s", "--command-timeout=30s"]);
    command
}

/// Runs it, and answers what it said, line by line; panics when it says that something is wrong.
pub(super) fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("cannot start etcdctl: {error}: run setup/debian"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{complaint}");
    text.lines().map(str::to_owned).collect()
}

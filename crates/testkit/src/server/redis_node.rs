//! One process of Redis, with its port and its data.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    clock::WallClock,
    directory::scratch,
    preload,
    redirect::Redirect,
    system,
};

/// One process of Redis, or of a Sentinel: no persistence unless its arguments say so.
pub(super) struct Node {
    process: Option<Server>,
    directory: TempDir,
    /// Where it listens.
    pub(super) port: u16,
    /// What its owner wants beside directory and port.
    pub(super) arguments: Vec<String>,
    /// The file that it reads first, and writes when it changes its own configuration.
    file: Option<PathBuf>,
    clock: Option<WallClock>,
    redirect: Option<Redirect>,
}

impl Node {
    /// One that does not run yet.
    pub(super) fn new(arguments: Vec<String>) -> Self {
        let (directory, port) = (scratch(), free_port());
        Self { process: None, directory, port, arguments, file: None, clock: None, redirect: None }
    }

    /// Its own directory, in which it runs.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only certificates are looked for there"))]
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Gives it a file of configuration, with these lines at first. What [`arguments`](Self::arguments) say goes before it.
    pub(super) fn configure(&mut self, lines: &[String]) {
        let file = self.directory.path().join("redis.conf");
        fs::write(&file, lines.join("\n") + "\n").expect("a private directory takes a file");
        self.file = Some(file);
    }

    /// Gives it a clock of its own.
    pub(super) fn with_clock(&mut self) {
        self.clock = Some(WallClock::new(self.directory.path()));
    }

    /// Lets connections that it makes be led elsewhere.
    pub(super) fn with_redirect(&mut self, library: &Path) {
        self.redirect = Some(Redirect::new(self.directory.path(), library));
    }

    /// Where its connections go.
    pub(super) const fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_ref()
    }

    /// Sets its clock this many seconds away from the machine's.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Its unix socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Starts it, with the data that it has.
    pub(super) fn start(&mut self) {
        let directory = self.directory.path().display().to_string();
        let (socket, port) = (self.socket().display().to_string(), self.port.to_string());
        let own = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &directory];
        let rest = ["--unixsocket", &socket, "--unixsocketperm", "700"];
        let quiet = ["--daemonize", "no", "--loglevel", "warning"];
        let file = self.file.iter().map(|file| file.display().to_string());
        let own = own.into_iter().chain(rest).chain(quiet).map(str::to_owned);
        let all: Vec<String> = file.chain(own).chain(self.arguments.iter().cloned()).collect();
        let clock = self.clock.iter().flat_map(WallClock::environment);
        let redirect = self.redirect.iter().flat_map(Redirect::environment);
        let environment = preload::environment(clock.chain(redirect));
        self.kill();
        self.process = Some(Server::start(&self.program(), self.directory.path(), &all, &environment));
    }

    /// Waits until it has read its data.
    pub(super) fn wait_until_loaded(&mut self) {
        self.wait_until(|port| has_loaded(port).unwrap_or(false));
    }

    /// Waits until it listens, which it does before it has read its data.
    pub(super) fn wait_until_listening(&mut self) {
        self.wait_until(|port| TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn wait_until(&mut self, ready: fn(u16) -> bool) {
        let port = self.port;
        self.process.as_mut().expect("the server is running").wait_until(|| ready(port));
    }

    /// The server is found in the path, or is what Debian calls the checker of its files: one program, which does what its
    /// name says. So it needs no package that starts a service.
    pub(super) fn program(&self) -> String {
        if let Some(other) = ["redis-server", "valkey-server"].iter().find_map(|name| system::program(name)) {
            return other;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find =
            |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
        if let Some(found) = find("redis-server") {
            return found.display().to_string();
        }
        let named = self.directory.path().join("redis-server");
        let checker = find("redis-check-rdb").expect("redis-server is missing: run setup/debian");
        if !named.exists() {
            std::os::unix::fs::symlink(checker, &named).expect("a private directory takes a link");
        }
        named.display().to_string()
    }

    pub(super) const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Sends a signal to it.
    pub(super) fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("the server is running").signal(signal);
    }

    /// Kills it, if it runs: what it did not save is lost.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it in order, so that it saves what it is to save.
    pub(super) fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }
}

/// Whether the server answers, whatever it says, and is not reading its data any more: it listens before it has.
fn has_loaded(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut said = [0; 64];
    let length = stream.read(&mut said)?;
    Ok(length > 0 && !said.starts_with(b"-LOADING"))
}

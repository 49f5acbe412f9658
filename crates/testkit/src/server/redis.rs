//! A private Redis.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    clock::WallClock,
    directory::scratch,
    system,
};

/// A private Redis server: no persistence unless its arguments say so.
pub struct RedisServer {
    process: Option<Server>,
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
    clock: Option<WallClock>,
    #[cfg(feature = "tls")]
    tls_port: Option<u16>,
}

impl RedisServer {
    /// Starts one, with more arguments of `redis-server`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let mut server = Self::prepared(arguments);
        server.restart();
        server
    }

    /// Starts one with a clock of its own.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_clock(arguments: &[&str]) -> Self {
        let mut server = Self::prepared(arguments);
        server.clock = Some(WallClock::new(server.directory.path()));
        server.restart();
        server
    }

    /// Starts one that takes encrypted connections too, of clients with a certificate of its authority.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        Self::showing("server")
    }

    /// Starts one that shows the certificate of its authority as its own.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted_as_an_authority() -> Self {
        Self::showing("ca")
    }

    #[cfg(feature = "tls")]
    fn showing(own: &str) -> Self {
        let mut server = Self::prepared(&[]);
        super::certificates::write(server.directory.path());
        let port = free_port();
        let file = |name: &str| server.certificate(name).display().to_string();
        let options = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file(&format!("{own}.pem"))),
            ("--tls-key-file", file(&format!("{own}.key"))),
            ("--tls-ca-cert-file", file("ca.pem")),
            ("--tls-auth-clients", "yes".to_owned()),
        ];
        server.arguments =
            options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
        server.tls_port = Some(port);
        server.restart();
        server
    }

    fn prepared(arguments: &[&str]) -> Self {
        let directory = scratch();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self {
            process: None,
            directory,
            port: free_port(),
            arguments,
            clock: None,
            #[cfg(feature = "tls")]
            tls_port: None,
        }
    }

    /// Sets its clock this many seconds away from the machine's.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens for encrypted connections.
    ///
    /// # Panics
    /// When it does not.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("the server takes encrypted connections")
    }

    /// A file of an encrypted one: `ca.pem`, its authority; `server.pem` for `localhost`, `client.pem`, and their keys,
    /// `server.key` and `client.key`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop), with the data that it saved, and waits until it has read it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        self.restart_until(|port| has_loaded(port).unwrap_or(false));
    }

    /// As [`restart`](Self::restart), but does not wait until it has read its data: it listens before that.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart_early(&mut self) {
        self.restart_until(|port| TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn restart_until(&mut self, ready: fn(u16) -> bool) {
        let directory = self.directory.path().display().to_string();
        let socket = self.socket().display().to_string();
        let port = self.port.to_string();
        let own = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &directory];
        let rest = [
            "--unixsocket",
            &socket,
            "--unixsocketperm",
            "700",
            "--daemonize",
            "no",
            "--loglevel",
            "warning",
        ];
        let all: Vec<String> =
            own.into_iter().chain(rest).map(str::to_owned).chain(self.arguments.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process = Server::start(&self.program(), self.directory.path(), &all, &environment);
        process.wait_until(|| ready(self.port));
        self.process = Some(process);
    }

    /// The server is found in the path, or is what Debian calls the checker of its files: one program, which does what its
    /// name says. So it needs no package that starts a service.
    fn program(&self) -> String {
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

    /// Kills it: what it did not save is lost.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it in order, so that it saves what it is to save.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }

    /// Stops its process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGSTOP);
    }

    /// Lets it run again.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGCONT);
    }

    /// Sends a command as an operator would, and answers what the server said, line by line.
    ///
    /// # Panics
    /// When the server says that something is wrong.
    pub fn command(&self, arguments: &[&str]) -> Vec<String> {
        let output = redis_command(self.port, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{complaint}");
        text.lines().map(str::to_owned).collect()
    }
}

/// Runs `redis-cli` against a port of this machine.
///
/// # Panics
/// When the program is missing.
#[must_use]
pub fn redis_command(port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-e"]).args(arguments);
    command.output().unwrap_or_else(|error| panic!("cannot start redis-cli: {error}: run setup/debian"))
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

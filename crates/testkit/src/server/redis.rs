//! A private Redis.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use nix::sys::signal::Signal;

use super::redis_node::Node;
#[cfg(feature = "tls")]
use super::redis_tls::{self, Bus};

/// A private Redis server: no persistence unless its arguments say so.
pub struct RedisServer {
    node: Node,
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
        server.node.with_clock();
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

    /// Starts one with the authority and the certificate of this one.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted_alike(&self) -> Self {
        Self::prepared(&[]).showing_of(self.node.directory(), "server")
    }

    #[cfg(feature = "tls")]
    fn showing(own: &str) -> Self {
        let server = Self::prepared(&[]);
        super::certificates::write(server.node.directory());
        let certificates = server.node.directory().to_owned();
        server.showing_of(&certificates, own)
    }

    #[cfg(feature = "tls")]
    fn showing_of(mut self, certificates: &std::path::Path, own: &str) -> Self {
        self.tls_port = Some(redis_tls::encrypt(&mut self.node, certificates, own, Bus::Plain));
        self.restart();
        self
    }

    fn prepared(arguments: &[&str]) -> Self {
        Self {
            node: Node::new(arguments.iter().map(|&argument| argument.to_owned()).collect()),
            #[cfg(feature = "tls")]
            tls_port: None,
        }
    }

    /// Sets its clock this many seconds away from the machine's.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, seconds: i64) {
        self.node.set_clock(seconds);
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.node.port
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
        self.node.directory().join(name)
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.node.socket()
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop), with the data that it saved, and waits until it has read it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        self.node.start();
        self.node.wait_until_loaded();
    }

    /// As [`restart`](Self::restart), but does not wait until it has read its data: it listens before that.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart_early(&mut self) {
        self.node.start();
        self.node.wait_until_listening();
    }

    /// Kills it: what it did not save is lost.
    pub fn kill(&mut self) {
        self.node.kill();
    }

    /// Ends it in order, so that it saves what it is to save.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&mut self) {
        self.node.stop();
    }

    /// Stops its process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.node.signal(Signal::SIGSTOP);
    }

    /// Lets it run again.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.node.signal(Signal::SIGCONT);
    }

    /// Sends a command as an operator would, and answers what the server said, line by line.
    ///
    /// # Panics
    /// When the server says that something is wrong.
    pub fn command(&self, arguments: &[&str]) -> Vec<String> {
        let output = redis_command(self.node.port, arguments);
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

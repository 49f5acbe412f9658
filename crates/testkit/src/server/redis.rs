//! A private Redis.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

#[cfg(feature = "tls")]
use super::redis_tls::{self, Bus};
use super::{node::Node, redis_node::RedisNode, standalone::Standalone};

/// A private Redis server: no persistence unless its arguments say so, so that a kill loses what it has.
pub type RedisServer = Standalone<RedisNode>;

impl RedisServer {
    /// Starts one, with more arguments of `redis-server`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::started(prepared(arguments))
    }

    /// Starts one with a clock of its own.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_clock(arguments: &[&str]) -> Self {
        let mut node = prepared(arguments);
        node.with_clock();
        Self::started(node)
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
        Self::showing_of(prepared(&[]), self.node.instance().directory(), "server")
    }

    #[cfg(feature = "tls")]
    fn showing(own: &str) -> Self {
        let node = prepared(&[]);
        let certificates = node.instance().directory().to_owned();
        super::certificates::write(&certificates);
        Self::showing_of(node, &certificates, own)
    }

    #[cfg(feature = "tls")]
    fn showing_of(mut node: RedisNode, certificates: &std::path::Path, own: &str) -> Self {
        node.tls_port = Some(redis_tls::encrypt(&mut node, certificates, own, Bus::Plain));
        Self::started(node)
    }

    /// Sets its clock this many seconds away from the machine's.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, seconds: i64) {
        self.node.set_clock(seconds);
    }

    /// Where it listens for encrypted connections.
    ///
    /// # Panics
    /// When it does not.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.node.tls_port.expect("the server takes encrypted connections")
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.node.socket()
    }

    /// As [`restart`](Self::restart), but does not wait until it has read its data: it listens before that.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart_early(&mut self) {
        self.node.start();
        self.node.wait_until_listening();
    }

    /// Ends it in order, so that it saves what it is to save.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&mut self) {
        self.node.instance_mut().stop();
    }
}

fn prepared(arguments: &[&str]) -> RedisNode {
    RedisNode::new(arguments.iter().map(|&argument| argument.to_owned()).collect())
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

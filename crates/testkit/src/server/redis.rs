//! A private Redis.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

#[cfg(feature = "tls")]
use super::redis_tls::{self, Bus};
use super::{node::Node, redis_node::RedisNode, standalone::Standalone};

/// A private Redis server. It has no persistence unless its arguments ask for it, so a kill loses its data.
pub type RedisServer = Standalone<RedisNode>;

impl RedisServer {
    /// Starts a server with further arguments of `redis-server`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_node(new_node(arguments))
    }

    /// Starts a server with a separate clock.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn with_clock(arguments: &[&str]) -> Self {
        let mut node = new_node(arguments);
        node.add_clock();
        Self::start_node(node)
    }

    /// Starts a server that also accepts encrypted connections, of clients with a certificate signed by the server's
    /// authority.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        Self::start_with_tls("server")
    }

    /// Starts a server that presents the certificate of the authority itself as its own certificate.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted_with_authority_certificate() -> Self {
        Self::start_with_tls("ca")
    }

    /// Starts another server with the authority and the certificate of this server.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted_with_same_certificate(&self) -> Self {
        Self::start_with_certificates(new_node(&[]), self.node.instance().directory(), "server")
    }

    /// Starts a server that presents this certificate. The certificate comes from a new authority.
    #[cfg(feature = "tls")]
    fn start_with_tls(certificate: &str) -> Self {
        let node = new_node(&[]);
        let certificates = node.instance().directory().to_owned();
        super::certificates::write(&certificates);
        Self::start_with_certificates(node, &certificates, certificate)
    }

    /// Starts a server that presents this certificate of the directory `certificates`.
    #[cfg(feature = "tls")]
    fn start_with_certificates(
        mut node: RedisNode,
        certificates: &std::path::Path,
        certificate: &str,
    ) -> Self {
        node.tls_port = Some(redis_tls::encrypt(&mut node, certificates, certificate, Bus::Plain));
        Self::start_node(node)
    }

    /// Sets the server's clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the server has no separate clock.
    pub fn set_clock(&self, seconds: i64) {
        self.node.set_clock(seconds);
    }

    /// The port for encrypted connections.
    ///
    /// # Panics
    /// If there is no such port.
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

    /// Like [`restart`](Self::restart), but does not wait until the server has read its data. A server listens already
    /// while it reads its data.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart_without_waiting(&mut self) {
        self.node.start();
        self.node.wait_until_listening();
    }

    /// Shuts the server down cleanly, so that it saves its data.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn stop(&mut self) {
        self.node.instance_mut().stop();
    }
}

/// A server with these arguments that is not started yet.
fn new_node(arguments: &[&str]) -> RedisNode {
    RedisNode::new(arguments.iter().map(|&argument| argument.to_owned()).collect())
}

/// Runs `redis-cli` against a port of this machine.
///
/// # Panics
/// If the program is missing.
#[must_use]
pub fn redis_command(port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-e"]).args(arguments);
    command.output().unwrap_or_else(|error| panic!("cannot start redis-cli: {error}: run setup/debian"))
}

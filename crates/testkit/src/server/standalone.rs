//! A private server without a cluster.

use nix::sys::signal::Signal;

use super::node::Node;

/// A private server without a cluster.
pub struct Standalone<N> {
    pub(super) node: N,
}

/// A kind of server with all its data in one directory.
pub trait DataDirectory: Node {}

impl<N: Node> Standalone<N> {
    /// Starts a server.
    pub(super) fn start_node(node: N) -> Self {
        let mut server = Self { node };
        server.restart();
        server
    }

    /// The port on which the server listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.node.port()
    }

    /// Starts the server again with its data, and waits until it serves.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self) {
        self.node.start();
        self.node.wait_until_serving();
    }

    /// Kills the server. All data that it has written stays.
    pub fn kill(&mut self) {
        self.node.instance_mut().kill();
    }

    /// Suspends the server's process until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn pause(&self) {
        self.node.instance().signal(Signal::SIGSTOP);
    }

    /// Resumes the server's process.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn resume(&self) {
        self.node.instance().signal(Signal::SIGCONT);
    }

    /// Runs a command of the operator's tool (such as `etcdctl`) against the server and returns the lines of its
    /// output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn command(&self, words: &[&str]) -> Vec<String> {
        self.node.command(words)
    }

    /// A file of an encrypted server: `ca.pem` (the authority), `server.pem` (for `localhost`), `client.pem`, and the
    /// keys `server.key` and `client.key`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.node.instance().directory().join(name)
    }
}

impl<N: DataDirectory> Standalone<N> {
    /// Kills the server and deletes its data. After a [`restart`](Self::restart) the server has no data, at the same
    /// address.
    ///
    /// # Panics
    /// If its data cannot be deleted.
    pub fn forget(&mut self) {
        self.node.instance_mut().forget();
    }

    /// Kills the server and copies its data for [`restore`](Self::restore).
    ///
    /// # Panics
    /// If its data cannot be copied.
    pub fn save(&mut self) {
        self.node.instance_mut().save();
    }

    /// Kills the server and restores the [saved](Self::save) data, like an operator who restores an old backup. After a
    /// [`restart`](Self::restart), the server's revisions or transaction numbers are smaller than before the kill.
    ///
    /// # Panics
    /// If nothing was saved.
    pub fn restore(&mut self) {
        self.node.instance_mut().restore();
    }
}

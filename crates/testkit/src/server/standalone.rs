//! A private server that stands alone.

use nix::sys::signal::Signal;

use super::node::Node;

/// A private server that stands alone.
pub struct Standalone<N> {
    pub(super) node: N,
}

/// A kind of server with all its data in one directory.
pub trait DataDirectory: Node {}

impl<N: Node> Standalone<N> {
    /// Starts one.
    pub(super) fn started(node: N) -> Self {
        let mut server = Self { node };
        server.restart();
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.node.port()
    }

    /// Starts it again, with the data that it has, and waits until it serves.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        self.node.start();
        self.node.wait_until_serving();
    }

    /// Kills it. It keeps what it has written.
    pub fn kill(&mut self) {
        self.node.instance_mut().kill();
    }

    /// Stops its process from running at all, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.node.instance().signal(Signal::SIGSTOP);
    }

    /// Lets it run again.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.node.instance().signal(Signal::SIGCONT);
    }

    /// Runs the operator's command against it, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, words: &[&str]) -> Vec<String> {
        self.node.command(words)
    }

    /// A file of an encrypted one: `ca.pem`, its authority; `server.pem` for `localhost`, `client.pem`, and their keys,
    /// `server.key` and `client.key`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.node.instance().directory().join(name)
    }
}

impl<N: DataDirectory> Standalone<N> {
    /// Kills it and throws its data away: after a [`restart`](Self::restart) it is as new, under the same identity.
    ///
    /// # Panics
    /// When its data cannot be removed.
    pub fn forget(&mut self) {
        self.node.instance_mut().forget();
    }

    /// Kills it and keeps a copy of its data for [`restore`](Self::restore).
    ///
    /// # Panics
    /// When its data cannot be copied.
    pub fn save(&mut self) {
        self.node.instance_mut().save();
    }

    /// Kills it and puts back what was [saved](Self::save), as an operator would who has an old copy: after a
    /// [`restart`](Self::restart) its revisions or transactions have gone backwards.
    ///
    /// # Panics
    /// When nothing was saved.
    pub fn restore(&mut self) {
        self.node.instance_mut().restore();
    }
}

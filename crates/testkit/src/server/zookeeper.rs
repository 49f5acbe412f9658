//! A private ZooKeeper.

#[cfg(feature = "tls")]
use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::zookeeper_node::Node;

/// What a server is told that need not wait for the disk.
pub(super) const HASTY: &str = "forceSync=no";

/// A private ZooKeeper of one node, with a tick of 500 ms and sessions from 1 s to 60 s.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub struct ZookeeperServer {
    node: Node,
    /// Where encrypted connections come in.
    #[cfg(feature = "tls")]
    secure_port: Option<u16>,
}

impl ZookeeperServer {
    /// Whom it lets do everything: the scheme and the words of `addauth`.
    pub const SUPER: (&str, &str) = ("digest", "super:secret");

    /// Starts one, with more lines of `zoo.cfg`. A line that begins with `-` is an option of `java`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(lines: &[&str]) -> Self {
        Self::durable(&[&[HASTY], lines].concat())
    }

    /// Starts one that answers only when the disk has what it says, with more lines of `zoo.cfg`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn durable(lines: &[&str]) -> Self {
        let mut node = Node::new();
        node.lines = lines.iter().map(|&line| line.to_owned()).collect();
        let mut server = Self {
            node,
            #[cfg(feature = "tls")]
            secure_port: None,
        };
        server.restart();
        server
    }

    /// Starts one that takes encrypted connections, of clients with a certificate of its authority.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        let mut node = Node::new();
        super::certificates::write(node.directory());
        let secure_port = super::child::free_port();
        // It wants a certificate and its key in one file.
        let part = |name: &str| std::fs::read_to_string(node.directory().join(name));
        let whole = part("server.pem").and_then(|certificate| Ok(certificate + &part("server.key")?));
        let whole = whole.expect("its certificate was written");
        std::fs::write(node.directory().join("server-whole.pem"), whole)
            .expect("a private directory takes a file");
        node.lines = [
            HASTY,
            &format!("secureClientPort={secure_port}"),
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.type=PEM",
            "ssl.keyStore.location=server-whole.pem",
            "ssl.trustStore.type=PEM",
            "ssl.trustStore.location=ca.pem",
        ]
        .map(str::to_owned)
        .into();
        let mut server = Self { node, secure_port: Some(secure_port) };
        server.restart();
        server
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        #[cfg(feature = "tls")]
        if let Some(port) = self.secure_port {
            return port;
        }
        self.node.port
    }

    /// Where it listens, as an encrypted one's certificate names it.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port();
        if port == self.node.port {
            format!("zookeeper://127.0.0.1:{port}")
        } else {
            format!("zookeepers://localhost:{port}")
        }
    }

    /// A file of an encrypted one: `ca.pem`, its authority; `server.pem` for `localhost`, `client.pem`, and their keys,
    /// `server.key` and `client.key`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.node.directory().join(name)
    }

    /// Starts it again, with the data that it has.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        self.node.start();
        self.node.wait_until_serving();
    }

    /// Kills it. It keeps its data.
    pub fn kill(&mut self) {
        self.node.kill();
    }

    /// Kills it and throws its data away: after a [`restart`](Self::restart) it is as new.
    ///
    /// # Panics
    /// When its data cannot be removed.
    pub fn forget(&mut self) {
        self.node.forget();
    }

    /// Kills it and keeps a copy of its data for [`restore`](Self::restore).
    ///
    /// # Panics
    /// When its data cannot be copied.
    pub fn save(&mut self) {
        self.node.save();
    }

    /// Kills it and puts back what was [saved](Self::save), as an operator would who has an old copy: after a
    /// [`restart`](Self::restart) its transactions have gone backwards.
    ///
    /// # Panics
    /// When nothing was saved.
    pub fn restore(&mut self) {
        self.node.restore();
    }

    /// Kills it and changes how many children a node ever had: after a [`restart`](Self::restart) the next that is numbered
    /// gets this number.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn set_child_counter(&mut self, path: &str, counter: i32) {
        self.node.set_child_counter(path, counter);
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

    /// What it answers to one of its words of four letters, such as `mntr`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn four_letters(&self, word: &str) -> String {
        self.node.four_letters(word).expect("the server answers")
    }

    /// Runs ZooKeeper's own command line as an operator would, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, words: &[&str]) -> Vec<String> {
        self.node.command(words)
    }

    /// Has ZooKeeper's own command line do what these lines say, as [`SUPER`](Self::SUPER).
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn command_as_super(&self, line: &str) {
        let (scheme, words) = Self::SUPER;
        self.node.commands(&format!("addauth {scheme} {words}\n{line}\nquit\n"));
    }
}

//! A private ZooKeeper.

#[cfg(feature = "tls")]
use super::node::Node;
use super::{standalone::Standalone, zookeeper_node::ZookeeperNode};

/// The setting of a server that answers before its data is on disk.
pub(super) const NO_FSYNC: &str = "forceSync=no";

/// A private ZooKeeper of one node, with a tick of 500 ms and sessions from 1 s to 60 s.
///
/// Only a [durable](Self::durable) server waits until its data is on disk. A kill of a server that does not wait loses
/// no data; a crash of the machine may lose some.
pub type ZookeeperServer = Standalone<ZookeeperNode>;

impl ZookeeperServer {
    /// The superuser: the scheme and the credentials for `addauth`.
    pub const SUPER: (&str, &str) = ("digest", "super:secret");

    /// Starts a server with further lines of `zoo.cfg`. A line that begins with `-` is an option of `java`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(lines: &[&str]) -> Self {
        Self::durable(&[&[NO_FSYNC], lines].concat())
    }

    /// Starts a server that answers only after the data is on disk, with further lines of `zoo.cfg`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn durable(lines: &[&str]) -> Self {
        let mut node = ZookeeperNode::new();
        node.lines = lines.iter().map(|&line| line.to_owned()).collect();
        Self::start_node(node)
    }

    /// Starts a server that accepts encrypted connections, of clients with a certificate signed by the server's
    /// authority.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        let mut node = ZookeeperNode::new();
        super::certificates::write(node.instance().directory());
        let secure_port = super::child::free_port();
        // The server needs its certificate and key in one file.
        let part = |name: &str| std::fs::read_to_string(node.instance().directory().join(name));
        let certificate_and_key =
            part("server.pem").and_then(|certificate| Ok(certificate + &part("server.key")?));
        let certificate_and_key = certificate_and_key.expect("its certificate was written");
        std::fs::write(node.instance().directory().join("server-whole.pem"), certificate_and_key)
            .expect("a private directory takes a file");
        node.lines = [
            NO_FSYNC,
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
        node.secure_port = Some(secure_port);
        Self::start_node(node)
    }

    /// The URL. For an encrypted server it has the host name of the server's certificate.
    #[must_use]
    pub fn url(&self) -> String {
        match self.node.secure_port {
            None => format!("zookeeper://127.0.0.1:{}", self.node.port),
            Some(port) => format!("zookeepers://localhost:{port}"),
        }
    }

    /// Kills the server and sets the child counter of a node. After a [`restart`](Self::restart), the next sequential
    /// child below the node gets this number.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn set_child_counter(&mut self, path: &str, counter: i32) {
        self.node.set_child_counter(path, counter);
    }

    /// The answer to a four-letter command, such as `mntr`.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn four_letter_command(&self, word: &str) -> String {
        self.node.four_letter_command(word).expect("the server answers")
    }

    /// Runs a line in ZooKeeper's own shell, as [`SUPER`](Self::SUPER).
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn command_as_super(&self, line: &str) {
        let (scheme, words) = Self::SUPER;
        self.node.commands(&format!("addauth {scheme} {words}\n{line}\nquit\n"));
    }
}

//! A private ZooKeeper.

#[cfg(feature = "tls")]
use super::node::Node;
use super::{standalone::Standalone, zookeeper_node::ZookeeperNode};

/// What a server is told that need not wait for the disk.
pub(super) const HASTY: &str = "forceSync=no";

/// A private ZooKeeper of one node, with a tick of 500 ms and sessions from 1 s to 60 s.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub type ZookeeperServer = Standalone<ZookeeperNode>;

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
        let mut node = ZookeeperNode::new();
        node.lines = lines.iter().map(|&line| line.to_owned()).collect();
        Self::started(node)
    }

    /// Starts one that takes encrypted connections, of clients with a certificate of its authority.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        let mut node = ZookeeperNode::new();
        super::certificates::write(node.instance().directory());
        let secure_port = super::child::free_port();
        // It wants a certificate and its key in one file.
        let part = |name: &str| std::fs::read_to_string(node.instance().directory().join(name));
        let whole = part("server.pem").and_then(|certificate| Ok(certificate + &part("server.key")?));
        let whole = whole.expect("its certificate was written");
        std::fs::write(node.instance().directory().join("server-whole.pem"), whole)
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
        node.secure_port = Some(secure_port);
        Self::started(node)
    }

    /// Where it listens, as an encrypted one's certificate names it.
    #[must_use]
    pub fn url(&self) -> String {
        match self.node.secure_port {
            None => format!("zookeeper://127.0.0.1:{}", self.node.port),
            Some(port) => format!("zookeepers://localhost:{port}"),
        }
    }

    /// Kills it and changes how many children a node ever had: after a [`restart`](Self::restart) the next that is numbered
    /// gets this number.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn set_child_counter(&mut self, path: &str, counter: i32) {
        self.node.set_child_counter(path, counter);
    }

    /// What it answers to one of its words of four letters, such as `mntr`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn four_letters(&self, word: &str) -> String {
        self.node.four_letters(word).expect("the server answers")
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

//! A private etcd.

use std::process::Output;

#[cfg(feature = "tls")]
use super::node::Node;
use super::{
    etcd_node::{EtcdNode, etcdctl},
    standalone::Standalone,
};

/// A private etcd of one node.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub type EtcdServer = Standalone<EtcdNode>;

impl EtcdServer {
    /// Starts one, with more arguments of `etcd`.
    ///
    /// Its shortest lease is 2 s, as where nobody changed the timing. With `--heartbeat-interval=10` and
    /// `--election-timeout=100` it is 1 s, and a start takes a tenth of the time.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::durable(&[&["--unsafe-no-fsync"], arguments].concat())
    }

    /// Starts one that answers only when the disk has what it says, with more arguments of `etcd`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn durable(arguments: &[&str]) -> Self {
        let mut node = EtcdNode::new();
        let url = format!("http://127.0.0.1:{}", node.port);
        node.arguments =
            with_timing(&["--listen-client-urls", &url, "--advertise-client-urls", &url], arguments);
        Self::started(node)
    }

    /// Starts one that takes encrypted connections only, of clients with a certificate of its authority.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        let mut node = EtcdNode::new();
        super::certificates::write(node.instance().directory());
        node.encrypted = true;
        node.health_port = super::child::free_port();
        let listen = format!("https://127.0.0.1:{}", node.port);
        let advertise = format!("https://localhost:{}", node.port);
        let health = format!("http://127.0.0.1:{}", node.health_port);
        let addresses = ["--listen-client-urls", &listen, "--advertise-client-urls", &advertise];
        let certificates = [
            "--listen-metrics-urls",
            &health,
            "--cert-file=server.pem",
            "--key-file=server.key",
            "--trusted-ca-file=ca.pem",
            "--client-cert-auth",
            "--unsafe-no-fsync",
        ];
        node.arguments = with_timing(&addresses, &certificates);
        Self::started(node)
    }

    /// Where it listens, as an encrypted one's certificate names it.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port();
        if self.node.encrypted {
            format!("etcds://localhost:{port}")
        } else {
            format!("etcd://127.0.0.1:{port}")
        }
    }

    /// From now on it has users: none but `root`, who may do everything and is its operator.
    ///
    /// # Panics
    /// When it has users already.
    pub fn ask_for_logins(&mut self, password: &str) {
        let login = format!("root:{password}");
        for command in
            [["user", "add", &login].as_slice(), &["user", "grant-role", "root", "root"], &["auth", "enable"]]
        {
            self.command(command);
        }
        self.node.login = Some(login);
    }
}

/// Runs `etcdctl` against a port of this machine.
///
/// # Panics
/// When the program is missing.
#[must_use]
pub fn etcd_command(port: u16, arguments: &[&str]) -> Output {
    let output = etcdctl(&format!("127.0.0.1:{port}")).args(arguments).output();
    output.unwrap_or_else(|error| panic!("cannot start etcdctl: {error}: run setup/debian"))
}

/// About the quickest timing that leaves the shortest lease at 2 s: a lone node waits for an election at every start. Few
/// ticks, for a busy machine swallows some.
fn with_timing(addresses: &[&str], rest: &[&str]) -> Vec<String> {
    let timing = ["--heartbeat-interval=150", "--election-timeout=750"];
    [addresses, &timing, rest].concat().into_iter().map(str::to_owned).collect()
}

//! A private etcd.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::process::{Command, Output};

use nix::sys::signal::Signal;

use super::etcd_node::{Node, etcdctl, lines};

/// A private etcd of one node.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub struct EtcdServer {
    node: Node,
    encrypted: bool,
    /// Who operates it, where it has users.
    login: Option<String>,
}

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
        let mut node = Node::new();
        let url = format!("http://127.0.0.1:{}", node.port);
        node.arguments =
            with_timing(&["--listen-client-urls", &url, "--advertise-client-urls", &url], arguments);
        Self { node, encrypted: false, login: None }.started()
    }

    /// Starts one that takes encrypted connections only, of clients with a certificate of its authority.
    ///
    /// # Panics
    /// When it cannot be started.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn encrypted() -> Self {
        let mut node = Node::new();
        super::certificates::write(node.directory());
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
        Self { node, encrypted: true, login: None }.started()
    }

    fn started(mut self) -> Self {
        self.restart();
        self
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.node.port
    }

    /// Where it listens, as an encrypted one's certificate names it.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port();
        if self.encrypted { format!("etcds://localhost:{port}") } else { format!("etcd://127.0.0.1:{port}") }
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
        self.node.wait_until_healthy();
    }

    /// Kills it. It keeps its data.
    pub fn kill(&mut self) {
        self.node.kill();
    }

    /// Kills it and throws its data away: after a [`restart`](Self::restart) it is as new, under the same identity.
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
    /// [`restart`](Self::restart) its revisions have gone backwards.
    ///
    /// # Panics
    /// When nothing was saved.
    pub fn restore(&mut self) {
        self.node.restore();
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
        self.login = Some(login);
    }

    /// Runs `etcdctl` as an operator would, and answers what it said, line by line.
    ///
    /// # Panics
    /// When it says that something is wrong.
    pub fn command(&self, arguments: &[&str]) -> Vec<String> {
        lines(self.operator().args(arguments))
    }

    fn operator(&self) -> Command {
        let mut command = if self.encrypted {
            let mut command = etcdctl(&format!("https://localhost:{}", self.port()));
            command.current_dir(self.node.directory());
            command.args(["--cacert=ca.pem", "--cert=client.pem", "--key=client.key"]);
            command
        } else {
            etcdctl(&format!("127.0.0.1:{}", self.port()))
        };
        if let Some(login) = &self.login {
            command.env("ETCDCTL_USER", login);
        }
        command
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

//! A private etcd.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::Output,
};

#[cfg(feature = "tls")]
use super::node::Node;
use super::{
    etcd_node::{EtcdNode, etcdctl},
    standalone::Standalone,
};

/// A private etcd of one node.
///
/// Only a [durable](Self::durable) server waits until its data is on disk. A kill of the server loses no data; a crash
/// of the machine may lose some.
pub type EtcdServer = Standalone<EtcdNode>;

impl EtcdServer {
    /// Starts a server with further arguments of `etcd`.
    ///
    /// Its shortest lease is 2 s, as with the default timing of etcd. With the arguments `--heartbeat-interval=10` and
    /// `--election-timeout=100` it is 1 s, and a start takes a tenth of the time that it takes without them.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::durable(&[&["--unsafe-no-fsync"], arguments].concat())
    }

    /// Starts a server that answers only after the data is on disk, with further arguments of `etcd`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn durable(arguments: &[&str]) -> Self {
        let mut node = EtcdNode::new();
        let url = format!("http://127.0.0.1:{}", node.port);
        node.arguments =
            with_timing(&["--listen-client-urls", &url, "--advertise-client-urls", &url], arguments);
        Self::start_node(node)
    }

    /// Starts a server that accepts only encrypted connections, and only of clients with a certificate signed by the
    /// server's authority.
    ///
    /// # Panics
    /// If the server cannot be started.
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
        Self::start_node(node)
    }

    /// The URL. For an encrypted server it has the host name of the server's certificate.
    #[must_use]
    pub fn url(&self) -> String {
        let port = self.port();
        if self.node.encrypted {
            format!("etcds://localhost:{port}")
        } else {
            format!("etcd://127.0.0.1:{port}")
        }
    }

    /// Turns on authentication. The only user is `root`, which has all rights and is the operator.
    ///
    /// # Panics
    /// If the server has users already.
    pub fn require_logins(&mut self, password: &str) {
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
/// If the program is missing.
#[must_use]
pub fn etcd_command(port: u16, arguments: &[&str]) -> Output {
    let output = etcdctl(&format!("127.0.0.1:{port}")).args(arguments).output();
    output.unwrap_or_else(|error| panic!("cannot start etcdctl: {error}: run setup/debian"))
}

/// The arguments of a server with nearly the shortest timing with which the shortest lease is still 2 s. A short timing
/// makes a start quick, because a single node waits for an election at every start. The heartbeat interval is long for
/// this timing, because a busy machine skips short ticks.
fn with_timing(addresses: &[&str], rest: &[&str]) -> Vec<String> {
    let timing = ["--heartbeat-interval=150", "--election-timeout=750"];
    [addresses, &timing, rest].concat().into_iter().map(str::to_owned).collect()
}

/// The page of metrics of the etcd on this port.
///
/// # Errors
/// If the server does not answer.
pub fn etcd_metrics(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// The number at the end of the line of the metrics that begins with `name`; `None` if there is no such line.
///
/// # Errors
/// If the server does not answer.
pub fn etcd_metric(port: u16, name: &str) -> io::Result<Option<f64>> {
    let page = etcd_metrics(port)?;
    let line = page.lines().find(|line| line.starts_with(name));
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()))
}

//! One etcd with its ports and its data.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use super::{
    child::free_port,
    node::{Instance, Node},
    standalone::DataDirectory,
    system,
};

/// The time limit of one request to a server. A server without a leader answers within a second.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// One etcd.
pub struct EtcdNode {
    instance: Instance,
    /// The port for clients.
    pub(super) port: u16,
    /// The port for peers.
    pub(super) peer_port: u16,
    /// The port for health checks, without encryption.
    pub(super) health_port: u16,
    /// The arguments other than the directory, the ports and the log.
    pub(super) arguments: Vec<String>,
    /// Whether clients use TLS.
    pub(super) encrypted: bool,
    /// The login of the operator, if the server has users.
    pub(super) login: Option<String>,
}

impl EtcdNode {
    /// A server that is not started yet.
    pub(super) fn new() -> Self {
        let port = free_port();
        Self {
            instance: Instance::new(),
            port,
            peer_port: free_port(),
            health_port: port,
            arguments: Vec::new(),
            encrypted: false,
            login: None,
        }
    }

    /// The call of `etcdctl`, with the certificates and the login that the server needs. The caller adds arguments.
    fn operator(&self) -> Command {
        let mut command = if self.encrypted {
            let mut command = etcdctl(&format!("https://localhost:{}", self.port));
            command.current_dir(self.instance.directory());
            command.args(["--cacert=ca.pem", "--cert=client.pem", "--key=client.key"]);
            command
        } else {
            etcdctl(&format!("127.0.0.1:{}", self.port))
        };
        if let Some(login) = &self.login {
            command.env("ETCDCTL_USER", login);
        }
        command
    }
}

impl Node for EtcdNode {
    fn instance(&self) -> &Instance {
        &self.instance
    }

    fn instance_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn start(&mut self) {
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let base_arguments =
            ["--data-dir", "data", "--logger=zap", "--log-level=error", "--listen-peer-urls", &peers];
        let all_arguments: Vec<String> =
            base_arguments.into_iter().map(str::to_owned).chain(self.arguments.iter().cloned()).collect();
        let program = system::program("etcd").unwrap_or_else(|| "etcd".to_owned());
        self.instance.start(&program, &all_arguments, &[]);
    }

    /// Waits until the server accepts writes.
    fn wait_until_serving(&mut self) {
        let health = self.health_port;
        let is_healthy = || {
            http_request(health, "GET /health").is_some_and(|answer| answer.contains(r#""health":"true""#))
        };
        self.instance.wait_until(is_healthy);
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let mut command = self.operator();
        let output = command.args(words).output();
        let output = output.unwrap_or_else(|error| panic!("cannot start etcdctl: {error}: run setup/debian"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}{stderr}");
        text.lines().map(str::to_owned).collect()
    }
}

impl DataDirectory for EtcdNode {}

/// The answer to a request without encryption, such as `GET /health`. `None`: there is no answer.
pub(super) fn http_request(port: u16, request: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    // The gateway needs a JSON object as the body. With HTTP/1.0 the server closes the connection after the answer.
    write!(stream, "{request} HTTP/1.0\r\nContent-Length: 2\r\n\r\n{{}}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The call of `etcdctl` for a server at this endpoint. The caller adds arguments.
pub(super) fn etcdctl(endpoint: &str) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]);
    // The default time limits are seconds, which can be too short on a busy machine.
    command.args(["--dial-timeout=30s", "--command-timeout=30s"]);
    command
}

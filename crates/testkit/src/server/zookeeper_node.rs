//! One ZooKeeper with its ports and its data.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use super::{
    child::free_port,
    java::{class_path, java, java_arguments, server_class_path},
    node::{Instance, Node},
    socks_proxy::SocksProxy,
    standalone::DataDirectory,
};

/// The time limit of a four-letter command.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The time limit of a four-letter command to a server that may be starting or may be in an election. Such a server may
/// never answer a request that arrives too early.
const EARLY_LIMIT: Duration = Duration::from_millis(200);
/// The configuration lines that every test server has. A tick is the unit of all times in the configuration, and
/// sessions end at a tick.
const USUAL: [&str; 10] = [
    "clientPortAddress=127.0.0.1",
    "dataDir=./data",
    "tickTime=500",
    "minSessionTimeout=1000",
    "maxSessionTimeout=60000",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    // The digest of the user `super` with the password `secret`, who has all rights.
    "DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
    // During an election, nodes repeat their messages at growing intervals. This is the longest interval.
    "fastleader.maxNotificationInterval=1000",
];

/// ZooKeeper's library, and the libraries that it needs but does not name.
const LIBRARIES: [&str; 3] = ["zookeeper", "netty-codec", "netty-resolver"];

/// One ZooKeeper.
pub struct ZookeeperNode {
    instance: Instance,
    /// The port without encryption.
    pub(super) port: u16,
    /// Further configuration lines. Lines that begin with `-` are options of `java`.
    pub(super) lines: Vec<String>,
    /// The port for encrypted connections, if there is one.
    pub(super) secure_port: Option<u16>,
    /// Its number in an ensemble.
    pub(super) id: Option<usize>,
    /// The proxy by which it connects to the others of its ensemble.
    pub(super) socks_proxy: Option<SocksProxy>,
}

/// The status that a serving node reports.
pub(super) struct Status {
    /// Whether the node is the leader of other nodes.
    pub(super) leads: bool,
    /// The number of its newest transaction.
    pub(super) zxid: u64,
}

impl ZookeeperNode {
    /// A server that is not started yet.
    pub(super) fn new() -> Self {
        Self {
            instance: Instance::new(),
            port: free_port(),
            lines: Vec::new(),
            secure_port: None,
            id: None,
            socks_proxy: None,
        }
    }

    /// The reported status, if the node serves.
    pub(super) fn status(&self) -> Option<Status> {
        status(self.port)
    }

    /// Kills the server and sets the number of the next sequential child below `path`.
    pub(super) fn set_child_counter(&mut self, path: &str, counter: i32) {
        self.instance.kill();
        self.write("SetChildCounter.java", include_str!("SetChildCounter.java"));
        let mut arguments = java_arguments(&class_path(&LIBRARIES), self.directory());
        let counter = counter.to_string();
        arguments.extend(["SetChildCounter.java", "data", path, &counter].map(str::to_owned));
        java(self.directory(), &arguments, "");
    }

    /// The answer to a four-letter command. `None`: there is no answer.
    pub(super) fn four_letter_command(&self, word: &str) -> Option<String> {
        send_command(self.port, word, ANSWER_LIMIT)
    }

    /// Runs these lines in ZooKeeper's own shell.
    pub(super) fn commands(&self, lines: &str) {
        java(self.directory(), &self.shell(&[]), lines);
    }

    fn shell(&self, words: &[&str]) -> Vec<String> {
        let mut arguments = java_arguments(&class_path(&LIBRARIES), self.directory());
        arguments.push("-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned());
        let server = format!("127.0.0.1:{}", self.port);
        let program = ["org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", &server];
        arguments.extend(program.iter().chain(words).map(|&word| word.to_owned()));
        arguments
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory().join(name), text).expect("a private directory takes a file");
    }

    fn directory(&self) -> &Path {
        self.instance.directory()
    }
}

impl Node for ZookeeperNode {
    fn instance(&self) -> &Instance {
        &self.instance
    }

    fn instance_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }

    fn port(&self) -> u16 {
        self.secure_port.unwrap_or(self.port)
    }

    fn start(&mut self) {
        self.instance.kill();
        let (options, lines): (Vec<_>, Vec<_>) =
            self.lines.iter().cloned().partition(|line| line.starts_with('-'));
        let port = format!("clientPort={}", self.port);
        let lines = USUAL.into_iter().chain([&*port]).chain(lines.iter().map(String::as_str));
        self.write("zoo.cfg", &lines.collect::<Vec<_>>().join("\n"));
        if let Some(id) = self.id {
            fs::create_dir_all(self.instance.data()).expect("a private directory takes another");
            self.write("data/myid", &id.to_string());
        }
        let mut arguments = java_arguments(&server_class_path(&LIBRARIES), self.directory());
        arguments.extend(options);
        arguments.extend(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"].map(str::to_owned));
        self.instance.start("java", &arguments, &[]);
    }

    fn wait_until_serving(&mut self) {
        // The encrypted port is opened after the other one.
        let (port, secure_port) = (self.port, self.secure_port);
        self.instance.wait_until(|| status(port).is_some() && secure_port.is_none_or(accepts));
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let mut output = java(self.directory(), &self.shell(words), "");
        // The output before this line is only about the connection.
        let connected = output.iter().position(|line| line.contains("state:SyncConnected"));
        output.split_off(connected.map_or(0, |line| line + 1))
    }
}

impl DataDirectory for ZookeeperNode {}

fn status(port: u16) -> Option<Status> {
    let answer = send_command(port, "srvr", EARLY_LIMIT)?;
    let field = |name| answer.lines().find_map(|line| line.strip_prefix(name));
    let zxid = field("Zxid: 0x").and_then(|text| u64::from_str_radix(text, 16).ok());
    Some(Status { leads: field("Mode: ")? == "leader", zxid: zxid? })
}

/// Whether something listens on this port.
fn accepts(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), EARLY_LIMIT).is_ok()
}

fn send_command(port: u16, word: &str, limit: Duration) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

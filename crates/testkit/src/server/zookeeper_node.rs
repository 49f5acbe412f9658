//! One ZooKeeper, with its ports and its data.

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
    standalone::DataDirectory,
    switch::Switch,
};

/// How long a question may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long one may take of a server that may be starting or electing: who comes before it is ready may never be heard.
const EARLY_LIMIT: Duration = Duration::from_millis(200);
/// What every server of a test is told. A tick is the unit of all its times, and sessions end at one.
const USUAL: [&str; 10] = [
    "clientPortAddress=127.0.0.1",
    "dataDir=./data",
    "tickTime=500",
    "minSessionTimeout=1000",
    "maxSessionTimeout=60000",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    // The digest of `super:secret`: who says that may do everything.
    "DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
    // Elections are told again and again, ever more rarely: at the latest after this time.
    "fastleader.maxNotificationInterval=1000",
];

/// Its own, and what that needs of others but does not name.
const LIBRARIES: [&str; 3] = ["zookeeper", "netty-codec", "netty-resolver"];

/// One ZooKeeper.
pub struct ZookeeperNode {
    instance: Instance,
    /// Where it answers without encryption.
    pub(super) port: u16,
    /// What its owner wants: lines of its configuration and, with a `-` before them, options of `java`.
    pub(super) lines: Vec<String>,
    /// Where encrypted connections come in, if they do.
    pub(super) secure_port: Option<u16>,
    /// Which of several it is.
    pub(super) id: Option<usize>,
    /// Through it one of several calls the others.
    pub(super) switch: Option<Switch>,
}

/// What one that serves says of itself.
pub(super) struct Status {
    /// Whether it leads others.
    pub(super) leads: bool,
    /// Its newest transaction.
    pub(super) zxid: u64,
}

impl ZookeeperNode {
    /// One that does not run yet.
    pub(super) fn new() -> Self {
        Self {
            instance: Instance::new(),
            port: free_port(),
            lines: Vec::new(),
            secure_port: None,
            id: None,
            switch: None,
        }
    }

    /// What it says of itself, if it serves.
    pub(super) fn status(&self) -> Option<Status> {
        status(self.port)
    }

    /// Kills it and makes this number the next that a sequence below `path` uses.
    pub(super) fn set_child_counter(&mut self, path: &str, counter: i32) {
        self.instance.kill();
        self.write("SetChildCounter.java", include_str!("SetChildCounter.java"));
        let mut arguments = java_arguments(&class_path(&LIBRARIES), self.directory());
        let counter = counter.to_string();
        arguments.extend(["SetChildCounter.java", "data", path, &counter].map(str::to_owned));
        java(self.directory(), &arguments, "");
    }

    /// What it answers to one of its words of four letters; `None` when it does not.
    pub(super) fn four_letters(&self, word: &str) -> Option<String> {
        ask(self.port, word, ANSWER_LIMIT)
    }

    /// Has the operator's command do what these lines say.
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
        let port = self.port;
        self.instance.wait_until(|| status(port).is_some());
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let mut output = java(self.directory(), &self.shell(words), "");
        // Before it does anything it tells that it is connected.
        let connected = output.iter().position(|line| line.contains("state:SyncConnected"));
        output.split_off(connected.map_or(0, |line| line + 1))
    }
}

impl DataDirectory for ZookeeperNode {}

fn status(port: u16) -> Option<Status> {
    let answer = ask(port, "srvr", EARLY_LIMIT)?;
    let field = |name| answer.lines().find_map(|line| line.strip_prefix(name));
    let zxid = field("Zxid: 0x").and_then(|text| u64::from_str_radix(text, 16).ok());
    Some(Status { leads: field("Mode: ")? == "leader", zxid: zxid? })
}

fn ask(port: u16, word: &str, limit: Duration) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

//! One Redis or one Sentinel, with its port and its data.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    child::free_port,
    clock::WallClock,
    node::{Instance, Node},
    preload,
    redirect::Redirect,
    redis::redis_command,
    system,
};

/// One Redis or one Sentinel. It has no persistence unless its arguments ask for it.
pub struct RedisNode {
    instance: Instance,
    /// The port that it listens on.
    pub(super) port: u16,
    /// The arguments other than the directory and the port.
    pub(super) arguments: Vec<String>,
    /// The configuration file. The process reads it at its start, and writes later changes of its configuration to it.
    config_file: Option<PathBuf>,
    clock: Option<WallClock>,
    redirect: Option<Redirect>,
    /// The port for encrypted connections of a standalone server, if it has one.
    #[cfg(feature = "tls")]
    pub(super) tls_port: Option<u16>,
}

impl RedisNode {
    /// A server that is not started yet.
    pub(super) fn new(arguments: Vec<String>) -> Self {
        Self {
            instance: Instance::new(),
            port: free_port(),
            arguments,
            config_file: None,
            clock: None,
            redirect: None,
            #[cfg(feature = "tls")]
            tls_port: None,
        }
    }

    /// Gives it a configuration file with these lines. The [`arguments`](Self::arguments) take precedence.
    pub(super) fn configure(&mut self, lines: &[String]) {
        let file = self.instance.directory().join("redis.conf");
        fs::write(&file, lines.join("\n") + "\n").expect("a private directory takes a file");
        self.config_file = Some(file);
    }

    /// Gives the node a separate clock.
    pub(super) fn add_clock(&mut self) {
        self.clock = Some(WallClock::new(self.instance.directory()));
    }

    /// Prepares the node so that its outgoing connections can be redirected.
    pub(super) fn add_redirect(&mut self, library: &Path) {
        self.redirect = Some(Redirect::new(self.instance.directory(), library));
    }

    /// The redirections of its outgoing connections.
    pub(super) const fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_ref()
    }

    /// Sets the server's clock to the machine's time plus `seconds`.
    pub(super) fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Its unix socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.instance.directory().join("redis.sock")
    }

    /// Waits until the node listens. A node listens already while it reads its data.
    pub(super) fn wait_until_listening(&mut self) {
        let port = self.port;
        self.instance.wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// The path of the server. If only Debian's `redis-check-rdb` is installed, this is the path of `redis-check-rdb`:
    /// it is the same program as the server, and acts according to the name by which it is started. So tests do not
    /// need the package that starts a service.
    pub(super) fn program(&self) -> String {
        if let Some(other) = ["redis-server", "valkey-server"].iter().find_map(|name| system::program(name)) {
            return other;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find =
            |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
        if let Some(found) = find("redis-server") {
            return found.display().to_string();
        }
        let link = self.instance.directory().join("redis-server");
        let checker = find("redis-check-rdb").expect("redis-server is missing: run setup/debian");
        if !link.exists() {
            std::os::unix::fs::symlink(checker, &link).expect("a private directory takes a link");
        }
        link.display().to_string()
    }
}

impl Node for RedisNode {
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
        let directory = self.instance.directory().display().to_string();
        let (socket, port) = (self.socket().display().to_string(), self.port.to_string());
        let address = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &directory];
        let unix_socket = ["--unixsocket", &socket, "--unixsocketperm", "700"];
        let process = ["--daemonize", "no", "--loglevel", "warning"];
        let config_file = self.config_file.iter().map(|file| file.display().to_string());
        let fixed = address.into_iter().chain(unix_socket).chain(process).map(str::to_owned);
        let all_arguments: Vec<String> =
            config_file.chain(fixed).chain(self.arguments.iter().cloned()).collect();
        let clock = self.clock.iter().flat_map(WallClock::environment);
        let redirect = self.redirect.iter().flat_map(Redirect::environment);
        let environment = preload::environment(clock.chain(redirect));
        let program = self.program();
        self.instance.start(&program, &all_arguments, &environment);
    }

    /// Waits until it has read its data.
    fn wait_until_serving(&mut self) {
        let port = self.port;
        self.instance.wait_until(|| has_loaded(port).unwrap_or(false));
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let output = redis_command(self.port, words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{stderr}");
        text.lines().map(str::to_owned).collect()
    }
}

/// Whether the server answers, even with an error, and has read its data. A server listens before it has read its data.
fn has_loaded(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 64];
    let length = stream.read(&mut reply)?;
    Ok(length > 0 && !reply.starts_with(b"-LOADING"))
}

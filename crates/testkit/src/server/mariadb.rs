//! A private MariaDB, or a private MySQL from another system.

use std::{
    fs,
    process::{Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    clock::WallClock,
    directory,
    mysql_programs::Program,
    template::DataTemplate,
};

const DATABASE: &str = "locks";
/// The smallest possible log, so that copies of the data directory are small. Newer versions of MySQL do not have this
/// option, and `loose` makes them ignore it.
const LOG_SIZE: &str = "--loose-innodb-log-file-size=4M";

/// The interval between two attempts to connect to a server that has no free connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The time limit of the attempts to connect to a server that has no free connection.
const RETRY_LIMIT: Duration = Duration::from_secs(90);

/// A private MariaDB server with one database, `locks`, whose superuser `root` needs no password.
///
/// Only a [durable](Self::durable) server waits until its data is on disk. A kill of the server loses no data; a crash
/// of the machine may lose some.
pub struct MariadbServer {
    process: Option<Server>,
    directory: TempDir,
    port: u16,
    options: Vec<String>,
    clock: Option<WallClock>,
}

impl MariadbServer {
    /// Starts a server with options, each as `--name=value`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        Self::durable(&[&["--innodb-flush-log-at-trx-commit=2"], options].concat())
    }

    /// Starts a server that answers only after the data is on disk, with options.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn durable(options: &[&str]) -> Self {
        Self::in_directory(directory_with_data(), options)
    }

    /// Starts a server with a separate clock, which [`set_clock`](Self::set_clock) sets.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn with_clock() -> Self {
        let directory = directory_with_data();
        let clock = WallClock::new(directory.path());
        let mut server = Self::new_server(directory, &[]);
        server.clock = Some(clock);
        server.restart();
        server
    }

    /// Sets the server's clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the server has no separate clock.
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Starts another server with options and a copy of the data of this server, which must not run.
    ///
    /// # Panics
    /// If this server runs, or the other cannot be started.
    #[must_use]
    pub fn copy(&self, options: &[&str]) -> Self {
        assert!(self.process.is_none(), "the data of a server that runs change");
        let directory = directory::scratch();
        directory::copy(&self.directory.path().join("data"), &directory.path().join("data"));
        Self::in_directory(directory, options)
    }

    /// Starts a server that accepts only encrypted connections.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn encrypted() -> Self {
        let directory = directory_with_data();
        super::certificates::write(directory.path());
        let file = |name: &str| directory.path().join(name).display().to_string();
        let (certificate, key) =
            (format!("--ssl-cert={}", file("server.pem")), format!("--ssl-key={}", file("server.key")));
        Self::in_directory(directory, &[&certificate, &key, "--require-secure-transport=ON"])
    }

    /// Starts a server without encryption, with options.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn unencrypted(options: &[&str]) -> Self {
        Self::start(&[&[Program::find().without_tls()], options].concat())
    }

    /// A file of an encrypted server; `ca.pem` is its certificate authority.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn in_directory(directory: TempDir, options: &[&str]) -> Self {
        let mut server = Self::new_server(directory, options);
        server.restart();
        server
    }

    /// A server that is not started yet.
    fn new_server(directory: TempDir, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { process: None, directory, port: free_port(), options, clock: None }
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// Starts the server again, with its data.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self) {
        let directory = self.directory.path();
        let base_options = [
            format!("--datadir={}", directory.join("data").display()),
            format!("--socket={}", directory.join("socket").display()),
            format!("--pid-file={}", directory.join("pid").display()),
            // At its start, a server deletes all temporary tables in its temporary directory, including those of other
            // servers. So each server gets a temporary directory of its own.
            format!("--tmpdir={}", directory.display()),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            "--max-connections=300".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            LOG_SIZE.to_owned(),
        ];
        let program = Program::find();
        let all_options: Vec<String> =
            program.arguments().into_iter().chain(base_options).chain(self.options.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process =
            Server::start(&program.path.display().to_string(), directory, &all_options, &environment);
        let log = directory.join("stderr");
        let is_up = || fs::read_to_string(&log).is_ok_and(|log| log.contains("ready for connections"));
        // Before the server listens, a start of the client program would be in vain. A server in a cluster accepts
        // connections before it can read tables.
        process.wait_until(|| is_up() && self.succeeds("SELECT host FROM mysql.db"));
        self.process = Some(process);
    }

    /// Kills the server; all sessions end with it. Committed data stays.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGKILL).expect("a child can be waited for");
    }

    /// Shuts the server down cleanly.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }

    /// Suspends the server's process until [`resume`](Self::resume). Its connections stay, but it does not answer.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn pause(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGSTOP);
    }

    /// Resumes the server's process.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn resume(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGCONT);
    }

    /// How many transactions of InnoDB meet the condition. Waits 0.12 s first: InnoDB makes its table of transactions
    /// anew only if nobody has read it for 0.1 s, so a caller who asks more often would always get the same answer.
    ///
    /// # Panics
    /// As [`query`](Self::query).
    #[must_use]
    pub fn transactions(&self, condition: &str) -> usize {
        sleep(Duration::from_millis(120));
        let counted =
            self.query(&format!("SELECT count(*) FROM information_schema.innodb_trx WHERE {condition}"));
        counted[0].parse().expect("a count")
    }

    /// Runs a statement as an operator and returns the rows, with `|` between columns.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn query(&self, sql: &str) -> Vec<String> {
        let limit = Instant::now() + RETRY_LIMIT;
        let mut output = self.client(sql);
        // One connection is reserved for operators. It may still be in use by the previous call, until the server has
        // noticed that the call's client closed it.
        while is_full(&output) && Instant::now() < limit {
            sleep(RETRY_INTERVAL);
            output = self.client(sql);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {text}{stderr}");
        text.lines().map(|line| line.replace('\t', "|")).collect()
    }

    /// Runs a statement as an operator. Returns whether it succeeded.
    #[must_use]
    pub fn succeeds(&self, sql: &str) -> bool {
        self.client(sql).status.success()
    }

    /// Runs a statement by the client program.
    fn client(&self, sql: &str) -> Output {
        let socket = self.directory.path().join("socket");
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"]);
        command.arg(format!("--socket={}", socket.display())).args([DATABASE, "--execute", sql]);
        command.output().unwrap_or_else(|error| panic!("cannot start mariadb: {error}: run setup/debian"))
    }
}

/// Whether the server had no free connection.
fn is_full(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("Too many connections")
}

/// A directory with the data of an unused server.
fn directory_with_data() -> TempDir {
    let directory = directory::scratch();
    let program = Program::find();
    let template = DataTemplate { name: program.name(), program: &program.path };
    template.copy_to(&directory.path().join("data"), |data| program.make(data, DATABASE, &[LOG_SIZE]));
    directory
}

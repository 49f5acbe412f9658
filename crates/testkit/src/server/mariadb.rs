//! A private MariaDB, or a MySQL of another system.

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
    template::Maker,
};

const DATABASE: &str = "locks";
/// A log as small as can be, for it is copied. MySQL has no such option any more.
const LOG_SIZE: &str = "--loose-innodb-log-file-size=4M";

/// How often, and for how long, a server is asked again that has no connection left.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(90);

/// A private MariaDB server with one database, `locks`, whose superuser `root` needs no password.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub struct MariadbServer {
    process: Option<Server>,
    directory: TempDir,
    port: u16,
    options: Vec<String>,
    clock: Option<WallClock>,
}

impl MariadbServer {
    /// Starts one, with options, each as `--name=value`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        Self::durable(&[&["--innodb-flush-log-at-trx-commit=2"], options].concat())
    }

    /// Starts one that answers only when the disk has what it says, with options.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn durable(options: &[&str]) -> Self {
        Self::in_directory(fresh(), options)
    }

    /// Starts one with a clock of its own, which [`set_clock`](Self::set_clock) sets.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_clock() -> Self {
        let directory = fresh();
        let clock = WallClock::new(directory.path());
        let mut server = Self::prepared(directory, &[]);
        server.clock = Some(clock);
        server.restart();
        server
    }

    /// Sets its clock this many seconds away from the machine's.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Starts another one, with options, with a copy of the data of this one, which is not running.
    ///
    /// # Panics
    /// When this one runs, or the other cannot be started.
    #[must_use]
    pub fn copy(&self, options: &[&str]) -> Self {
        assert!(self.process.is_none(), "the data of a server that runs change");
        let directory = directory::scratch();
        directory::copy(&self.directory.path().join("data"), &directory.path().join("data"));
        Self::in_directory(directory, options)
    }

    /// Starts one that takes encrypted connections only.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn encrypted() -> Self {
        let directory = fresh();
        super::certificates::write(directory.path());
        let file = |name: &str| directory.path().join(name).display().to_string();
        let (certificate, key) =
            (format!("--ssl-cert={}", file("server.pem")), format!("--ssl-key={}", file("server.key")));
        Self::in_directory(directory, &[&certificate, &key, "--require-secure-transport=ON"])
    }

    /// Starts one that does not encrypt, with options.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn unencrypted(options: &[&str]) -> Self {
        Self::start(&[&[Program::find().without_tls()], options].concat())
    }

    /// A file of an encrypted one: its authority is `ca.pem`.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn certificate(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn in_directory(directory: TempDir, options: &[&str]) -> Self {
        let mut server = Self::prepared(directory, options);
        server.restart();
        server
    }

    fn prepared(directory: TempDir, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { process: None, directory, port: free_port(), options, clock: None }
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// Starts it again, with the data that it has.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        let directory = self.directory.path();
        let own = [
            format!("--datadir={}", directory.join("data").display()),
            format!("--socket={}", directory.join("socket").display()),
            format!("--pid-file={}", directory.join("pid").display()),
            // A server that starts deletes the temporary tables of all servers that have theirs in the same directory.
            format!("--tmpdir={}", directory.display()),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            "--max-connections=300".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            LOG_SIZE.to_owned(),
        ];
        let program = Program::find();
        let all: Vec<String> =
            program.arguments().into_iter().chain(own).chain(self.options.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process = Server::start(&program.path.display().to_string(), directory, &all, &environment);
        let log = directory.join("stderr");
        let is_up = || fs::read_to_string(&log).is_ok_and(|log| log.contains("ready for connections"));
        // Who asks before starts a program for nothing. One of a cluster takes connections before it reads tables.
        process.wait_until(|| is_up() && self.takes("SELECT host FROM mysql.db"));
        self.process = Some(process);
    }

    /// Kills it, and with it all sessions: what was committed stays.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGKILL).expect("a child can be waited for");
    }

    /// Ends it, in order.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGTERM).expect("a child can be waited for");
    }

    /// Stops its clockwork: it keeps its connections and says nothing, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// When it is not running.
    pub fn pause(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is not running.
    pub fn resume(&self) {
        self.process.as_ref().expect("the server is running").signal(Signal::SIGCONT);
    }

    /// Says something as an operator would, and answers what the server said, line by line, columns with `|` between them.
    ///
    /// # Panics
    /// When the server says that something is wrong.
    pub fn says(&self, sql: &str) -> Vec<String> {
        let limit = Instant::now() + PATIENCE;
        let mut output = self.client(sql);
        // The one connection that is kept for operators may be that of the call before, which the server closes still.
        while is_full(&output) && Instant::now() < limit {
            sleep(LOOK);
            output = self.client(sql);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {text}{stderr}");
        text.lines().map(|line| line.replace('\t', "|")).collect()
    }

    /// Tells it something as an operator would; false when it says that something is wrong.
    #[must_use]
    pub fn takes(&self, sql: &str) -> bool {
        self.client(sql).status.success()
    }

    fn client(&self, sql: &str) -> Output {
        let socket = self.directory.path().join("socket");
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root"]);
        command.arg(format!("--socket={}", socket.display())).args([DATABASE, "--execute", sql]);
        command.output().unwrap_or_else(|error| panic!("cannot start mariadb: {error}: run setup/debian"))
    }
}

fn is_full(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("Too many connections")
}

/// A directory with the data of a server that was never used.
fn fresh() -> TempDir {
    let directory = directory::scratch();
    let program = Program::find();
    let maker = Maker { name: program.name(), program: &program.path };
    maker.put(&directory.path().join("data"), |data| program.make(data, DATABASE, &[LOG_SIZE]));
    directory
}

//! A private PostgreSQL.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nix::{
    sys::signal::Signal,
    unistd::{Uid, User},
};
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    clock::WallClock,
};

/// Whom Debian's package makes for the server, which refuses to run as root.
const USER: &str = "postgres";

/// A private PostgreSQL server with one database, `postgres`, whose superuser `postgres` needs no password.
///
/// It does not wait for the disk, but for a [durable](Self::durable) one: a kill loses nothing, a fall of the machine may.
pub struct PostgresServer {
    process: Option<Server>,
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
    clock: Option<WallClock>,
}

impl PostgresServer {
    /// Starts one, with settings, each as `name=value`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        Self::durable(&[&["fsync=off"], settings].concat())
    }

    /// Starts one that answers only when the disk has what it says, with settings.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn durable(settings: &[&str]) -> Self {
        Self::in_directory(TempDir::new().expect("the system has room for a directory"), settings)
    }

    /// Starts one that takes encrypted connections only, of users with a password.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn encrypted(user: &str, password: &str) -> Self {
        let directory = TempDir::new().expect("the system has room for a directory");
        super::certificates::write(directory.path());
        use std::os::unix::fs::PermissionsExt;
        let key = directory.path().join("server.key");
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("the key is ours");
        let settings = ["ssl=on", "ssl_cert_file=../server.pem", "ssl_key_file=../server.key", "fsync=off"];
        let server = Self::in_directory(directory, &settings);
        server.says(&format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'"));
        let rules = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(server.directory.path().join("data/pg_hba.conf"), rules).expect("the directory is ours");
        server.says("SELECT pg_reload_conf()");
        server
    }

    /// Starts one with a clock of its own, which [`set_clock`](Self::set_clock) sets.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_clock() -> Self {
        let directory = TempDir::new().expect("the system has room for a directory");
        let clock = WallClock::new(directory.path());
        let mut server = Self::in_directory(directory, &["fsync=off"]);
        server.clock = Some(clock);
        server.stop();
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

    /// Starts another one that follows it and is not waited for, until it is [promoted](Self::promote).
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn replica(&self) -> Self {
        let directory = TempDir::new().expect("the system has room for a directory");
        give_away(directory.path());
        let port = self.port.to_string();
        let copy =
            ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-D", "data", "-R", "-c", "fast", "--no-sync"];
        let made = as_user(directory.path(), &program("pg_basebackup")).args(copy).output();
        let made = made.expect("every system has setpriv");
        assert!(made.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&made.stderr));
        Self::on_data(directory, &["fsync=off"])
    }

    /// Makes a replica a server of its own.
    ///
    /// # Panics
    /// When it does not become one.
    pub fn promote(&self) {
        assert_eq!(self.says("SELECT pg_promote()"), ["t"]);
    }

    fn in_directory(directory: TempDir, settings: &[&str]) -> Self {
        give_away(directory.path());
        let init = ["-D", "data", "-A", "trust", "-U", USER, "--no-locale", "-E", "UTF8", "--no-sync"];
        let made = as_user(directory.path(), &program("initdb")).args(init).output();
        let made = made.expect("every system has setpriv");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        Self::on_data(directory, settings)
    }

    fn on_data(directory: TempDir, settings: &[&str]) -> Self {
        let port = free_port();
        let own = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=.".to_owned(),
            "max_connections=200".to_owned(),
            // In its directory, so that one that is killed leaves nothing outside of it.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        let settings = own.into_iter().chain(settings.iter().map(|&setting| setting.to_owned()));
        let arguments = settings.flat_map(|setting| ["-c".to_owned(), setting]).collect();
        let mut server = Self { process: None, directory, port, arguments, clock: None };
        server.restart();
        server
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// A file of an encrypted one: its authority is `ca.pem`.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts it again, with the data that it has.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn restart(&mut self) {
        let data = ["-D".to_owned(), "data".to_owned()];
        let (first, rest) = as_user_arguments(self.directory.path(), &program("postgres"));
        let all: Vec<String> = rest.into_iter().chain(data).chain(self.arguments.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process = Server::start(&first, self.directory.path(), &all, &environment);
        let port = self.port;
        process.wait_until(|| psql(port, &["-c", "SELECT 1"]).status.success());
        self.process = Some(process);
    }

    /// Kills it, and with it all sessions: what was committed stays.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self) {
        // The others of its processes end by themselves when this one is gone, and it does not start before they have.
        self.process = None;
    }

    /// Ends it at once, in order.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGINT).expect("a child can be waited for");
    }

    /// Says something as an operator would, and answers what the server said, line by line, columns with `|` between them.
    ///
    /// # Panics
    /// When the server says that something is wrong.
    pub fn says(&self, sql: &str) -> Vec<String> {
        let output = psql(self.port, &["-c", sql]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {text}{complaint}");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Killed, it would leave a segment of shared memory behind.
            let _ = process.end(Signal::SIGINT);
        }
    }
}

/// Runs `psql` against a port of this machine, as its superuser.
///
/// # Panics
/// When the program is missing.
#[must_use]
pub fn psql(port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        "127.0.0.1",
        "-U",
        USER,
        "-d",
        "postgres",
    ]);
    command.args(["-p", &port.to_string()]).args(arguments);
    command.output().unwrap_or_else(|error| panic!("cannot start psql: {error}: run setup/debian"))
}

/// To the user of the server, with all that is in it, where we are root.
pub(super) fn give_away(directory: &Path) {
    if !Uid::effective().is_root() {
        return;
    }
    let user = User::from_name(USER).ok().flatten().expect("postgres is missing: run setup/debian");
    let ours = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.path());
    for path in ours.chain([directory.to_owned()]) {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root gives away what it owns");
    }
}

/// A program of the newest server that is installed: Debian keeps them out of the path.
pub(super) fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let path = version.path().join("bin").join(name);
            Some((version.file_name().to_str()?.parse().ok()?, path)).filter(|(_, path)| path.exists())
        })
        .collect();
    found.sort();
    found.pop().map_or_else(|| name.to_owned(), |(_, path)| path.display().to_string())
}

/// How a program is run as who owns a directory: a program, and what stands before its own arguments.
pub(super) fn as_user_arguments(directory: &Path, program: &str) -> (String, Vec<String>) {
    let owner = fs::metadata(directory).expect("the directory is there");
    if owner.uid() == Uid::effective().as_raw() {
        return (program.to_owned(), Vec::new());
    }
    let ids = [format!("--reuid={}", owner.uid()), format!("--regid={}", owner.gid())];
    let rest = ["--clear-groups", "--pdeathsig", "KILL", "--", program].map(str::to_owned);
    ("setpriv".to_owned(), ids.into_iter().chain(rest).collect())
}

fn as_user(directory: &Path, program: &str) -> Command {
    let (first, rest) = as_user_arguments(directory, program);
    let mut command = Command::new(first);
    command.args(rest).current_dir(directory);
    command
}

//! A private PostgreSQL.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::{
    fs,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    child::{Server, free_port},
    clock::WallClock,
    directory::scratch,
    postgres_programs::{USER, as_user, as_user_arguments, give_away, psql},
    system::postgres_program,
    template::Maker,
};

/// How long the processes of a server that was killed may take to notice it.
const END_LIMIT: Duration = Duration::from_secs(60);

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
        Self::in_directory(scratch(), settings)
    }

    /// Starts one that takes encrypted connections only, of users with a password.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn encrypted(user: &str, password: &str) -> Self {
        let directory = scratch();
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
        let directory = scratch();
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
        let directory = scratch();
        give_away(directory.path());
        let port = self.port.to_string();
        let copy =
            ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-D", "data", "-R", "-c", "fast", "--no-sync"];
        let made = as_user(directory.path(), &postgres_program("pg_basebackup")).args(copy).output();
        let made = made.expect("every system has setpriv");
        assert!(made.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&made.stderr));
        Self::on_data(directory, &["fsync=off"])
    }

    /// A program that follows its changes, and is no replica. It ends when this is dropped. The server needs `wal_level=logical`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn subscriber(&self) -> impl Drop + use<> {
        let directory = self.directory.path().join("subscriber");
        fs::create_dir(&directory).expect("a private directory takes another");
        let port = self.port.to_string();
        let server = ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", "postgres"];
        let slot = ["--slot=subscriber", "--plugin=test_decoding", "--create-slot", "--start", "--file=-"];
        let all: Vec<String> = server.into_iter().chain(slot).map(str::to_owned).collect();
        Server::start(&postgres_program("pg_recvlogical"), &directory, &all, &[])
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
        let program = postgres_program("initdb");
        let maker = Maker { name: "postgres", program: program.as_ref() };
        maker.put(&directory.path().join("data"), |data| make(&program, data));
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
        let (first, rest) = as_user_arguments(self.directory.path(), &postgres_program("postgres"));
        let all: Vec<String> = rest.into_iter().chain(data).chain(self.arguments.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process = Server::start(&first, self.directory.path(), &all, &environment);
        process.wait_until(|| self.is_ready());
        self.process = Some(process);
    }

    /// Whether it takes connections, as it writes down: whoever asks it instead takes the time that it needs.
    fn is_ready(&self) -> bool {
        self.written(7).is_some_and(|state| state.trim_end() == "ready")
    }

    /// Kills it, and with it all sessions: what was committed stays.
    ///
    /// # Panics
    /// When it is not running.
    pub fn kill(&mut self) {
        self.process = None;
        // The others of its processes end by themselves when this one is gone: it does not start before they have.
        let (data, limit) = (self.directory.path().join("data"), Instant::now() + END_LIMIT);
        while has_process_in(&data) {
            assert!(Instant::now() < limit, "processes of a killed server are there after {END_LIMIT:?}");
            sleep(Duration::from_millis(2));
        }
        // What it wrote of itself would be believed when it starts again, and may be the only trace of its shared memory.
        let segment = self.written(6).and_then(|line| Some(line.split_whitespace().nth(1)?.to_owned()));
        if let Some(segment) = segment {
            let removed = Command::new("ipcrm").args(["-m", &segment]).status();
            assert!(
                removed.is_ok_and(|status| status.success()),
                "shared memory {segment} cannot be removed"
            );
        }
        fs::remove_file(data.join("postmaster.pid")).expect("a server that was killed leaves its traces");
    }

    /// A line of what it writes of itself while it runs.
    fn written(&self, line: usize) -> Option<String> {
        let text = fs::read_to_string(self.directory.path().join("data/postmaster.pid")).ok()?;
        text.lines().nth(line).map(str::to_owned)
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {text}{stderr}");
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

/// Makes the data of a server that was never used.
fn make(program: &str, data: &Path) {
    let directory = data.parent().expect("it is in a directory");
    give_away(directory);
    let init = ["-A", "trust", "-U", USER, "--no-locale", "-E", "UTF8", "--no-sync", "-D"];
    let made = as_user(directory, program).args(init).arg(data).output().expect("every system has setpriv");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}

/// Whether any process has this directory for its own.
fn has_process_in(directory: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut working_directories =
        processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    working_directories.any(|working_directory| working_directory == directory)
}

//! A private PostgreSQL.

use std::{
    fs,
    path::{Path, PathBuf},
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
    template::DataTemplate,
};

/// How long the processes of a killed server may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// A private PostgreSQL server with one database, `postgres`, whose superuser `postgres` needs no password.
///
/// Only a [durable](Self::durable) server waits until its data is on disk. A kill of the server loses no data; a crash
/// of the machine may lose some.
pub struct PostgresServer {
    process: Option<Server>,
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
    clock: Option<WallClock>,
}

impl PostgresServer {
    /// Starts a server with settings, each as `name=value`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        Self::durable(&[&["fsync=off"], settings].concat())
    }

    /// Starts a server that answers only after the data is on disk, with settings.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn durable(settings: &[&str]) -> Self {
        Self::in_directory(scratch(), settings)
    }

    /// Starts a server that accepts only encrypted connections of users with a password.
    ///
    /// # Panics
    /// If the server cannot be started.
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
        server.query(&format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'"));
        let rules = "hostssl all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(server.directory.path().join("data/pg_hba.conf"), rules).expect("the directory is ours");
        server.query("SELECT pg_reload_conf()");
        server
    }

    /// Starts a server with a separate clock, which [`set_clock`](Self::set_clock) sets.
    ///
    /// # Panics
    /// If the server cannot be started.
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

    /// Sets the server's clock to the machine's time plus `seconds`.
    ///
    /// # Panics
    /// If the server has no separate clock.
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("the server has a clock of its own").set(seconds);
    }

    /// Starts an asynchronous replica of this server, which can be [promoted](Self::promote).
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn replica(&self) -> Self {
        let directory = scratch();
        give_away(directory.path());
        let port = self.port.to_string();
        let copy =
            ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-D", "data", "-R", "-c", "fast", "--no-sync"];
        let output = as_user(directory.path(), &postgres_program("pg_basebackup")).args(copy).output();
        let output = output.expect("every system has setpriv");
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        Self::on_data(directory, &["fsync=off"])
    }

    /// Starts a program that reads the server's changes by logical replication; the program is no replica. The program
    /// ends when the returned value is dropped. The server needs `wal_level=logical`.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn subscriber(&self) -> impl Drop + use<> {
        let directory = self.directory.path().join("subscriber");
        fs::create_dir(&directory).expect("a private directory takes another");
        let port = self.port.to_string();
        let server = ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", "postgres"];
        let slot = ["--slot=subscriber", "--plugin=test_decoding", "--create-slot", "--start", "--file=-"];
        let all_arguments: Vec<String> = server.into_iter().chain(slot).map(str::to_owned).collect();
        Server::start(&postgres_program("pg_recvlogical"), &directory, &all_arguments, &[])
    }

    /// Makes a replica an independent server.
    ///
    /// # Panics
    /// If the replica cannot be promoted.
    pub fn promote(&self) {
        assert_eq!(self.query("SELECT pg_promote()"), ["t"]);
    }

    fn in_directory(directory: TempDir, settings: &[&str]) -> Self {
        give_away(directory.path());
        let program = postgres_program("initdb");
        let template = DataTemplate { name: "postgres", program: program.as_ref() };
        template.copy_to(&directory.path().join("data"), |data| create_data(&program, data));
        Self::on_data(directory, settings)
    }

    fn on_data(directory: TempDir, settings: &[&str]) -> Self {
        let port = free_port();
        let base_settings = [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=.".to_owned(),
            "max_connections=200".to_owned(),
            // Shared memory in the server's directory, so that a killed server leaves nothing outside of it.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        let settings = base_settings.into_iter().chain(settings.iter().map(|&setting| setting.to_owned()));
        let arguments = settings.flat_map(|setting| ["-c".to_owned(), setting]).collect();
        let mut server = Self { process: None, directory, port, arguments, clock: None };
        server.restart();
        server
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory of its unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// A file of an encrypted server; `ca.pem` is its certificate authority.
    #[must_use]
    #[cfg(feature = "tls")]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the server again, with its data.
    ///
    /// # Panics
    /// If the server cannot be started.
    pub fn restart(&mut self) {
        let data = ["-D".to_owned(), "data".to_owned()];
        let (launcher, launcher_arguments) =
            as_user_arguments(self.directory.path(), &postgres_program("postgres"));
        let all_arguments: Vec<String> =
            launcher_arguments.into_iter().chain(data).chain(self.arguments.iter().cloned()).collect();
        let environment = self.clock.as_ref().map(|clock| clock.environment().to_vec()).unwrap_or_default();
        let mut process = Server::start(&launcher, self.directory.path(), &all_arguments, &environment);
        process.wait_until(|| self.is_ready());
        self.process = Some(process);
    }

    /// Whether the server accepts connections, according to its pid file. A check by a connection would take time that
    /// the server needs.
    fn is_ready(&self) -> bool {
        self.pid_file_line(7).is_some_and(|state| state.trim_end() == "ready")
    }

    /// Kills the server; all sessions end with it. Committed data stays.
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn kill(&mut self) {
        self.process = None;
        // The main process is killed; the other processes of the server then end by themselves. A new server does not
        // start before they have ended.
        let (data, limit) = (self.directory.path().join("data"), Instant::now() + END_LIMIT);
        while has_process_in(&data) {
            assert!(Instant::now() < limit, "processes of a killed server are there after {END_LIMIT:?}");
            sleep(Duration::from_millis(2));
        }
        // A new server would trust the pid file, so the file is removed. Before that, the segment of shared memory that
        // the file names is removed, because the file may be the only record of this segment.
        let segment = self.pid_file_line(6).and_then(|line| Some(line.split_whitespace().nth(1)?.to_owned()));
        if let Some(segment) = segment {
            let removed = Command::new("ipcrm").args(["-m", &segment]).status();
            assert!(
                removed.is_ok_and(|status| status.success()),
                "shared memory {segment} cannot be removed"
            );
        }
        fs::remove_file(data.join("postmaster.pid")).expect("a server that was killed leaves its traces");
    }

    /// A line of the pid file, which exists while the server runs.
    fn pid_file_line(&self, line: usize) -> Option<String> {
        let text = fs::read_to_string(self.directory.path().join("data/postmaster.pid")).ok()?;
        text.lines().nth(line).map(str::to_owned)
    }

    /// Shuts the server down cleanly, and without waiting for clients (the "fast" shutdown of PostgreSQL).
    ///
    /// # Panics
    /// If the server was killed or shut down, and not restarted.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.end(Signal::SIGINT).expect("a child can be waited for");
    }

    /// Runs a statement as an operator and returns the rows, with `|` between columns.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn query(&self, sql: &str) -> Vec<String> {
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
            // A clean shutdown, because a kill would leave a segment of shared memory behind.
            let _ = process.end(Signal::SIGINT);
        }
    }
}

/// Creates the data of an unused server.
fn create_data(program: &str, data: &Path) {
    let directory = data.parent().expect("it is in a directory");
    give_away(directory);
    let init = ["-A", "trust", "-U", USER, "--no-locale", "-E", "UTF8", "--no-sync", "-D"];
    let output = as_user(directory, program).args(init).arg(data).output().expect("every system has setpriv");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether any process has this directory as its working directory.
fn has_process_in(directory: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut working_directories =
        processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    working_directories.any(|working_directory| working_directory == directory)
}

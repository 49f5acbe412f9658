//! The common parts of the scenarios. All processes of a scenario share a *floor*: a directory of files, and the URL of
//! the locks.
//!
//! Without an argument, the locks are on the file engine. With the argument `redis`, `etcd`, `zookeeper`, `postgres` or
//! `mariadb` they are on a server that is started for the scenario; with `redis-sentinel` or `redis-cluster`, on
//! several Redis servers that are started for it; with a URL, on the server of the URL.
//!
//! Each scenario is one program. A process of the program that a person starts is the *boss*: it creates a directory,
//! starts the program several times as *workers*, waits for them, checks the result, and exits with 1 if anything is
//! wrong. A process with `FLOOR` in its environment is a worker.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    thread,
    time::Duration,
};

use leasehold_testkit::server::{
    EtcdServer, MariadbServer, PostgresServer, RedisCluster, RedisClusterOptions, RedisSentinelOptions,
    RedisSentinels, RedisServer, ZookeeperServer,
};

/// The ttl of leases in scenarios in which workers are killed. With a server, the other workers wait this long for the
/// lock of a killed worker; with lock files on one host they do not wait at all. A lease is renewed after a third of
/// its ttl. The other two thirds are a reserve, because a machine with many more processes than processors may not run
/// a process for seconds.
pub const TTL: Duration = Duration::from_secs(10);

/// A server of a group that does not answer for this time counts as down. The scenarios kill no server, but a machine
/// that is busy with a scenario may not run a server for seconds.
const DOWN_AFTER: Duration = Duration::from_secs(30);

/// The error of a scenario.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The directory that the boss and the workers share.
#[derive(Clone)]
pub struct Floor {
    dir: PathBuf,
    /// The number of this worker. `None`: this process is the boss.
    pub worker: Option<usize>,
    /// The URL of the locks.
    pub url: String,
}

impl Floor {
    /// The path of a file of the scenario.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The locks of the scenario.
    ///
    /// # Errors
    /// Those of `Locks::connect`.
    pub fn locks(&self) -> Result<leasehold::Locks, Failure> {
        Ok(leasehold::Locks::connect(&self.url)?)
    }

    /// Whether the locks are on this engine.
    #[must_use]
    pub fn is_on(&self, engine: &str) -> bool {
        self.url.starts_with(engine)
    }

    /// Starts the same program as the worker with this number.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn start(&self, worker: usize) -> io::Result<Child> {
        let mut command = Command::new(env::current_exe()?);
        command.env("FLOOR", &self.dir).env("FLOOR_URL", &self.url).env("WORKER", worker.to_string());
        command.spawn()
    }

    /// Reads a number from a file of the scenario. Returns 0 if the file does not exist yet.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn number(&self, name: &str) -> Result<u64, Failure> {
        match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(text.trim().parse()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a file of the scenario in one step. A writer that is killed leaves either the old file or the new one.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let draft = self.file(&format!("{name}.{}.draft", std::process::id()));
        fs::write(&draft, text)?;
        fs::rename(draft, self.file(name))
    }

    /// The complete lines of a file of the scenario. There are none if the file does not exist yet.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn lines(&self, name: &str) -> io::Result<Vec<String>> {
        read_lines(&self.file(name))
    }
}

fn read_lines(path: &Path) -> io::Result<Vec<String>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(complete.lines().map(str::to_owned).collect())
}

type Part = fn(&Floor) -> Result<(), Failure>;

/// Runs a scenario: either `boss`, in a new directory that is removed afterwards, or `worker`, in the directory of its
/// boss.
pub fn run(boss: Part, worker: Part) -> ExitCode {
    start(env::args().nth(1), boss, worker)
}

/// Like [`run`], for a scenario whose data is all in Redis.
pub fn run_on_redis(boss: Part, worker: Part) -> ExitCode {
    start(Some(env::args().nth(1).unwrap_or_else(|| "redis".to_owned())), boss, worker)
}

/// Like [`run`], for a scenario whose data is all in PostgreSQL.
pub fn run_on_postgres(boss: Part, worker: Part) -> ExitCode {
    start(Some(env::args().nth(1).unwrap_or_else(|| "postgres".to_owned())), boss, worker)
}

/// The server of the scenario. Dropping this value ends the server.
enum Server {
    None,
    Redis { _end: RedisServer },
    Sentinels { _end: RedisSentinels },
    Cluster { _end: RedisCluster },
    Etcd { _end: EtcdServer },
    Zookeeper { _end: ZookeeperServer },
    Postgres { _end: PostgresServer },
    Mariadb { _end: MariadbServer },
}

fn start(engine: Option<String>, boss: Part, worker: Part) -> ExitCode {
    let number = env::var("WORKER").ok().and_then(|number| number.parse().ok());
    let result = match (env::var_os("FLOOR"), env::var("FLOOR_URL"), number) {
        (Some(dir), Ok(url), number @ Some(_)) => worker(&Floor { dir: dir.into(), worker: number, url }),
        _ => tempfile::tempdir().map_err(Failure::from).and_then(|held| {
            let dir = held.path().to_owned();
            let (url, _server) = open(engine.as_deref(), &dir);
            boss(&Floor { dir, worker: None, url })
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("failed: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The URL of the locks for `engine`, the argument of the program; and the server that this function starts for it.
fn open(engine: Option<&str>, dir: &Path) -> (String, Server) {
    match engine {
        None => (format!("file://{}", dir.join("locks").display()), Server::None),
        Some("redis") => {
            let server = RedisServer::start(&[]);
            (format!("redis://127.0.0.1:{}", server.port()), Server::Redis { _end: server })
        }
        Some("redis-sentinel") => {
            let options = RedisSentinelOptions { down_after: DOWN_AFTER, ..Default::default() };
            let group = RedisSentinels::start_with(options);
            (group.url(), Server::Sentinels { _end: group })
        }
        Some("redis-cluster") => {
            let options = RedisClusterOptions { node_timeout: DOWN_AFTER, ..Default::default() };
            let cluster = RedisCluster::start_with(options);
            (cluster.url(), Server::Cluster { _end: cluster })
        }
        Some("etcd") => {
            let server = EtcdServer::start(&[]);
            (server.url(), Server::Etcd { _end: server })
        }
        Some("zookeeper") => {
            let server = ZookeeperServer::start(&[]);
            (server.url(), Server::Zookeeper { _end: server })
        }
        Some("postgres") => {
            let server = PostgresServer::start(&[]);
            (server.url(), Server::Postgres { _end: server })
        }
        Some("mariadb") => {
            let server = MariadbServer::start(&[]);
            (server.url(), Server::Mariadb { _end: server })
        }
        Some(url) => (url.to_owned(), Server::None),
    }
}

/// Waits for workers. Returns how many of them failed. A worker that the boss killed does not count.
///
/// # Errors
/// An error of the operating system.
pub fn failures(workers: Vec<Child>) -> io::Result<usize> {
    let mut failed = 0;
    for mut worker in workers {
        failed += usize::from(worker.wait()?.code().is_some_and(|code| code != 0));
    }
    Ok(failed)
}

/// Calls `done` every few milliseconds until it returns `true`, for at most a minute.
///
/// # Errors
/// When the minute is over, or when `done` fails.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    for _ in 0..12_000 {
        if done()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err(format!("waited a minute for this: {what}").into())
}

/// Returns an error unless `holds` is true.
///
/// # Errors
/// The text `what`, if `holds` is false.
pub fn check(holds: bool, what: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

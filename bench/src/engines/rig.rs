//! The engines of the comparison, each with a server of its own that answers after its data is on disk, unless the name
//! of the rig says otherwise.

use leasehold::Locks;
use leasehold_testkit::server::{EtcdServer, MariadbServer, PostgresServer, RedisServer, ZookeeperServer};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    Failure,
    etcd_bare::{Bare, all_messages},
    mysql_waiters::status,
    redis_site::ServerWork,
    redlock_free, zookeeper_free,
};

/// The settings of a Redis that answers after its data is on disk.
const ON_DISK: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const STATEMENTS: &str =
    "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";

/// An engine, with its server.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
}

/// Where an engine stores its locks.
pub(crate) enum Server {
    File(TempDir),
    Sqlite(TempDir),
    Redis(RedisServer),
    Redlock(Vec<RedisServer>),
    Etcd(EtcdServer),
    Zookeeper(ZookeeperServer),
    Postgres(PostgresServer),
    Mariadb(MariadbServer),
}

impl Rig {
    /// Starts all servers.
    pub(crate) fn all() -> Result<Vec<Self>, Failure> {
        let postgres = PostgresServer::durable(&["shared_preload_libraries=pg_stat_statements"]);
        postgres.query("CREATE EXTENSION pg_stat_statements");
        Ok(vec![
            Self { name: "file", server: Server::File(tempfile::tempdir()?) },
            Self { name: "SQLite", server: Server::Sqlite(tempfile::tempdir()?) },
            Self { name: "Redis, in memory", server: Server::Redis(RedisServer::start(&[])) },
            Self { name: "Redis, on disk", server: Server::Redis(RedisServer::start(&ON_DISK)) },
            Self { name: "Redlock, 3 nodes, in memory", server: Server::Redlock(redlock_free::nodes(3)) },
            Self { name: "etcd", server: Server::Etcd(EtcdServer::durable(&[])) },
            Self { name: "ZooKeeper", server: Server::Zookeeper(ZookeeperServer::durable(&[])) },
            Self { name: "PostgreSQL", server: Server::Postgres(postgres) },
            Self {
                name: "MariaDB",
                server: Server::Mariadb(MariadbServer::durable(&["--innodb-buffer-pool-size=128M"])),
            },
        ])
    }

    /// The ports of the servers. File and SQLite have none.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match &self.server {
            Server::File(_) | Server::Sqlite(_) => Vec::new(),
            Server::Redis(server) => vec![server.port()],
            Server::Redlock(nodes) => nodes.iter().map(RedisServer::port).collect(),
            Server::Etcd(server) => vec![server.port()],
            Server::Zookeeper(server) => vec![server.port()],
            Server::Postgres(server) => vec![server.port()],
            Server::Mariadb(server) => vec![server.port()],
        }
    }

    /// The URL of the locks.
    pub(crate) fn url(&self) -> String {
        self.url_at(&self.ports())
    }

    /// The URL of the locks if the servers are reached at these ports of this machine.
    pub(crate) fn url_at(&self, ports: &[u16]) -> String {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let hosts = hosts.join(",");
        match &self.server {
            Server::File(dir) => format!("file://{}", dir.path().join("locks").display()),
            Server::Sqlite(dir) => format!("sqlite://{}", dir.path().join("locks.db").display()),
            Server::Redis(_) => format!("redis://{hosts}"),
            Server::Redlock(_) => format!("redlock://{hosts}"),
            Server::Etcd(_) => format!("etcd://{hosts}"),
            Server::Zookeeper(_) => format!("zookeeper://{hosts}"),
            Server::Postgres(_) => format!("postgres://postgres@{hosts}/postgres"),
            Server::Mariadb(_) => format!("mysql://root@{hosts}/locks"),
        }
    }

    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        Ok(Locks::connect(&self.url())?)
    }

    /// Called before each measurement. An etcd becomes slower with each revision that is not compacted.
    pub(crate) fn prepare(&self, runtime: &Runtime) -> Result<(), Failure> {
        match &self.server {
            Server::Etcd(server) => {
                runtime.block_on(async { Bare::connect(server.port()).await?.compact().await })
            }
            _ => Ok(()),
        }
    }

    /// The requests that the servers have received so far, as each server counts them; and the commands that scripts
    /// ran on Redis. `None`: there is no server.
    pub(crate) fn requests(&self) -> Result<Option<(u64, u64)>, Failure> {
        let count = match &self.server {
            Server::File(_) | Server::Sqlite(_) => return Ok(None),
            Server::Redis(server) => return redis_requests(std::slice::from_ref(server)).map(Some),
            Server::Redlock(nodes) => return redis_requests(nodes).map(Some),
            Server::Etcd(server) => all_messages(server.port())?,
            Server::Zookeeper(server) => zookeeper_free::figure(server, "zk_packets_received")?,
            Server::Postgres(server) => server.query(STATEMENTS).first().ok_or("no count")?.parse()?,
            Server::Mariadb(server) => status(server, "Questions")?,
        };
        Ok(Some((count, 0)))
    }

    /// Kills the server and starts it again with its data; of several servers, the first. PostgreSQL is shut down
    /// ("fast") instead: the processes that serve its connections would go on for a while after a kill of its main
    /// process.
    pub(crate) fn restart(&mut self) {
        match &mut self.server {
            Server::File(_) | Server::Sqlite(_) => {}
            Server::Redis(server) => {
                server.kill();
                server.restart();
            }
            Server::Redlock(nodes) => {
                nodes[0].kill();
                nodes[0].restart();
            }
            Server::Etcd(server) => {
                server.kill();
                server.restart();
            }
            Server::Zookeeper(server) => {
                server.kill();
                server.restart();
            }
            Server::Postgres(server) => {
                server.stop();
                server.restart();
            }
            Server::Mariadb(server) => {
                server.kill();
                server.restart();
            }
        }
    }
}

fn redis_requests(nodes: &[RedisServer]) -> Result<(u64, u64), Failure> {
    let answers: Vec<String> = nodes.iter().flat_map(|node| node.command(&["INFO", "all"])).collect();
    let work = ServerWork::of(&answers)?;
    Ok((work.requests(), work.script_commands()))
}

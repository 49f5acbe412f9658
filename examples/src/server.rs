//! The servers that a scenario starts for itself.

use std::{any::Any, path::Path, time::Duration};

use leasehold_testkit::server::{
    EtcdServer, MariadbServer, PostgresServer, RedisCluster, RedisClusterOptions, RedisSentinelOptions,
    RedisSentinels, RedisServer, ZookeeperServer,
};

use crate::Failure;

/// A server of a group that does not answer for this time counts as down. The scenarios kill no server, but a machine
/// that is busy with a scenario may not run a server for seconds.
const DOWN_AFTER: Duration = Duration::from_secs(30);

/// A server, and its URL. Dropping this value ends the server.
pub(crate) struct Server {
    pub(crate) url: String,
    _end: Box<dyn Any>,
}

/// The server for a word of the command line. A URL means a server that runs already. `file` means lock files in `dir`.
pub(crate) fn open(place: &str, dir: &Path) -> Result<Server, Failure> {
    let server = |url: String, end: Box<dyn Any>| Ok(Server { url, _end: end });
    match place {
        "file" => server(format!("file://{}", dir.join("locks").display()), Box::new(())),
        "redis" => {
            let redis = RedisServer::start(&[]);
            server(format!("redis://127.0.0.1:{}", redis.port()), Box::new(redis))
        }
        "redis-sentinel" => {
            let options = RedisSentinelOptions { down_after: DOWN_AFTER, ..Default::default() };
            let group = RedisSentinels::start_with(options);
            server(group.url(), Box::new(group))
        }
        "redis-cluster" => {
            let options = RedisClusterOptions { node_timeout: DOWN_AFTER, ..Default::default() };
            let cluster = RedisCluster::start_with(options);
            server(cluster.url(), Box::new(cluster))
        }
        "etcd" => {
            let etcd = EtcdServer::start(&[]);
            server(etcd.url(), Box::new(etcd))
        }
        "zookeeper" => {
            let zookeeper = ZookeeperServer::start(&[]);
            server(zookeeper.url(), Box::new(zookeeper))
        }
        "postgres" => {
            let postgres = PostgresServer::start(&[]);
            server(postgres.url(), Box::new(postgres))
        }
        "mariadb" => {
            let mariadb = MariadbServer::start(&[]);
            server(mariadb.url(), Box::new(mariadb))
        }
        url if url.contains(':') => server(url.to_owned(), Box::new(())),
        other => Err(format!("{other} is neither a URL nor the name of a server").into()),
    }
}

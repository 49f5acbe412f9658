//! Private servers for tests: real programs, on loopback, with directories of their own, ended by their own process id.

#[cfg(feature = "tls")]
mod certificates;
mod child;
mod clock;
mod directory;
mod etcd;
mod etcd_cluster;
mod etcd_node;
mod gate;
mod go;
mod java;
mod liar;
mod mariadb;
mod mysql_programs;
mod pgbouncer;
mod postgres;
mod postgres_programs;
mod proxy;
mod redis;
mod switch;
mod system;
mod template;
mod zookeeper;
mod zookeeper_ensemble;
mod zookeeper_node;

pub use clock::WallClock;
pub use etcd::{EtcdServer, etcd_command};
pub use etcd_cluster::EtcdCluster;
pub use go::interop_program;
pub use java::java_program;
pub use liar::{Liar, Lie, Talk, outer_address};
pub use mariadb::MariadbServer;
pub use mysql_programs::Brand;
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use postgres_programs::psql;
pub use proxy::Proxy;
pub use redis::{RedisServer, redis_command};
pub use zookeeper::ZookeeperServer;
pub use zookeeper_ensemble::ZookeeperEnsemble;

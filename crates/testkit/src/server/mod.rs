//! Private servers for tests: real programs on loopback, each in its own directory, and ended by its process id.

#[cfg(feature = "tls")]
mod certificates;
mod child;
mod clock;
mod cluster;
mod directory;
mod etcd;
mod etcd_cluster;
mod etcd_node;
mod fake_server;
mod gate;
mod go;
mod java;
mod mariadb;
mod mysql_programs;
mod node;
mod pgbouncer;
mod postgres;
mod postgres_programs;
mod preload;
mod prometheus;
mod proxy;
mod redirect;
mod redis;
mod redis_cluster;
mod redis_cluster_view;
mod redis_group;
mod redis_members;
mod redis_node;
mod redis_sentinel_options;
mod redis_sentinels;
mod redis_slots;
#[cfg(feature = "tls")]
mod redis_tls;
mod redis_wire;
mod socks_proxy;
mod standalone;
mod system;
mod template;
mod zookeeper;
mod zookeeper_ensemble;
mod zookeeper_node;

#[cfg(feature = "tls")]
pub use certificates::write as certificates;
pub use clock::WallClock;
pub use cluster::{Cluster, ClusterNode};
pub use etcd::{EtcdServer, etcd_command, etcd_metric, etcd_metrics};
pub use etcd_cluster::EtcdCluster;
pub use fake_server::{FakeAnswers, FakeConnection, FakeServer, non_loopback_address};
pub use go::go_program;
pub use java::java_program;
pub use mariadb::MariadbServer;
pub use mysql_programs::Brand;
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use postgres_programs::psql;
pub use prometheus::{Prometheus, promtool};
pub use proxy::Proxy;
pub use redis::{RedisServer, redis_command};
pub use redis_cluster::{RedisCluster, RedisClusterOptions, RedisFailover};
pub use redis_sentinel_options::RedisSentinelOptions;
pub use redis_sentinels::RedisSentinels;
pub use redis_wire::RedisAnswer;
pub use standalone::Standalone;
pub use zookeeper::ZookeeperServer;
pub use zookeeper_ensemble::ZookeeperEnsemble;

//! Private servers for tests: real programs, on loopback, with directories of their own, ended by their own process id.

#[cfg(feature = "tls")]
mod certificates;
mod child;
mod clock;
mod etcd;
mod etcd_cluster;
mod etcd_node;
mod gate;
mod go;
mod proxy;
mod redis;

pub use clock::WallClock;
pub use etcd::{EtcdServer, etcd_command};
pub use etcd_cluster::EtcdCluster;
pub use go::interop_program;
pub use proxy::Proxy;
pub use redis::{RedisServer, redis_command};

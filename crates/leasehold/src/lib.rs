//! Distributed locks that report their loss, on engines that you already run.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # fn main() -> Result<(), leasehold::Error> {
//! let locks = leasehold::Locks::connect("memory:")?;
//! let guard = locks.mutex("nightly-report").blocking().acquire()?;
//! assert!(guard.check());
//! println!("mine, under token {}", guard.token());
//! guard.release_blocking()
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```

mod connect;
mod duration;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod encryption;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "redis", feature = "etcd"))]
mod fence;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod open;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_url;
#[cfg(feature = "redis")]
mod redlock_url;
#[cfg(any(
    feature = "tokio-postgres",
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql_async",
    feature = "redis-client"
))]
mod settings;
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "mysql_async",
    feature = "sqlx",
    feature = "tokio-postgres"
))]
pub mod sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql_url;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use connect::{Connect, Locks};
pub use duration::parse_duration;
#[cfg(feature = "etcd")]
pub use etcd::EtcdFence;
pub use leasehold_core::{
    Acquire, Blocking, Breaking, Broken, ClaimId, Credentials, Error, ErrorKind, Event, Finding, Guarantee,
    Guard, HolderView, Keeper, Level, Life, Lineage, Loss, MAX_NAME_BYTES, Mode, Name, Observe, Owner, Pace,
    Password, Previous, Profile, Request, Rw, Stop, TimeChange, Token, View, WaiterView, WhenUnreachable,
};
#[cfg(feature = "etcd")]
pub use leasehold_etcd::HeldBy as EtcdCompare;
#[cfg(feature = "redis")]
pub use leasehold_redis::Reply;
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "mysql_async",
    feature = "sqlx",
    feature = "tokio-postgres"
))]
pub use leasehold_sql::Fence as SqlFence;
#[cfg(feature = "tls")]
pub use leasehold_tls::{Tls, rustls};
#[cfg(feature = "zookeeper")]
pub use leasehold_zookeeper::HeldBy as ZookeeperCheck;
#[cfg(feature = "redis")]
pub use redis::RedisFence;
#[cfg(any(
    feature = "tokio-postgres",
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite",
    feature = "mysql_async",
    feature = "redis-client"
))]
pub use settings::ConnectionSettings;

/// The example of the README, compiled as a test.
#[cfg(all(doctest, feature = "file", target_os = "linux"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of the page on etcd, compiled as a test.
#[cfg(all(doctest, feature = "etcd"))]
#[doc = include_str!("../../../docs/engines/etcd.md")]
struct Etcd;

/// The examples of the page on PostgreSQL, compiled as tests.
#[cfg(all(doctest, feature = "sqlx-postgres", feature = "tokio-postgres"))]
#[doc = include_str!("../../../docs/engines/postgres.md")]
struct Postgres;

/// The example of the page on locks of rows, compiled as a test.
#[cfg(all(doctest, feature = "sqlx"))]
#[doc = include_str!("../../../docs/engines/row-locks.md")]
struct RowLocks;

/// The examples of the introductory pages, compiled as tests.
#[cfg(doctest)]
mod pages {
    #[cfg(feature = "sqlx-postgres")]
    #[doc = include_str!("../../../docs/quick-start.md")]
    struct QuickStart;

    #[doc = include_str!("../../../docs/choosing-a-ttl.md")]
    struct ChoosingATtl;

    #[doc = include_str!("../../../docs/waiting.md")]
    struct Waiting;

    #[doc = include_str!("../../../docs/migrating.md")]
    struct Migrating;

    #[doc = include_str!("../../../docs/observability.md")]
    struct Observability;
}

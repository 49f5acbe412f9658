//! Distributed locks that report their loss, on engines that you already run: Redis, etcd, ZooKeeper, PostgreSQL, MySQL
//! and MariaDB, SQLite, files, or the memory of one process.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # pollster::block_on(async {
//! # async fn sell(item: u32, token: leasehold::Token) -> Result<u32, std::io::Error> { Ok(99) }
//! let locks = leasehold::Locks::connect("memory:")?; // or redis://..., etcd://..., postgres://...
//!
//! // Waits, runs the work, cancels it if the lock is lost, and releases.
//! let left = locks.mutex("stock/4711").run(async |guard| sell(4711, guard.token()).await).await??;
//!
//! // The same in single steps.
//! let guard = locks.mutex("stock/4711").acquire().await?;
//! assert!(guard.check());
//! guard.release().await?;
//! # assert_eq!(left, 99);
//! # Ok(())
//! # })
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! It needs no particular executor: a background worker of its own, the [keeper](Keeper), renews and releases, also
//! while the program is busy. [`Request::blocking`] is for programs without an executor.
//!
//! # What there is
//!
//! | to | use |
//! |---|---|
//! | exclude all others | [`Locks::mutex`] |
//! | let readers share, and a writer be alone | [`Locks::rw`] |
//! | let at most n work at a time | [`Locks::semaphore`] |
//! | hold several names, all or none | [`Locks::all`] |
//! | lock millions of keys on a few names | [`Locks::striped`] |
//! | elect a leader, and let everyone find it | [`Locks::election`] |
//! | do work one time for a key, and replay its result | [`Locks::once`] |
//! | do it exactly one time, in a transaction of yours | `sql::once_in` |
//! | run work at certain times, in one of several processes | [`Locks::schedule`], [`Locks::tick`] |
//! | wait until several processes are ready | [`Locks::latch`] |
//! | run work in one call, with one `Result` | [`Request::run`], [`Blocking::run`] |
//! | wait for a limited time, or not at all | [`Request::acquire_within`], [`Request::try_acquire`] |
//! | be told of a loss | [`Guard::run`], [`Guard::lost`], [`Guard::on_lost`] |
//! | lock again what the caller may have locked | [`Owner::enter`] |
//! | refuse the writes of an outdated holder | [`Guard::token`], [`SqlFence`], [`RedisFence`], [`EtcdFence`] |
//! | see who holds and who waits, end a hold | [`Locks::show`], [`Locks::list`], [`Locks::break_hold`] |
//! | know what the engine promises, and what to mend | [`Locks::guarantee`], [`Locks::diagnose`] |
//! | start and stop a service | [`Locks::ping`], [`Locks::warm`], [`Locks::close`] |
//!
//! # Choose an engine
//!
//! [`Locks::connect`] takes a URL, [`Connect`] a URL and options. Each engine is a feature; `memory` and `file` are
//! there by default.
//!
//! | your case | URL | feature |
//! |---|---|---|
//! | all programs run on one machine | `file:` | `file` |
//! | one process, or tests of your program | `memory:` | `memory` |
//! | the data is in a database | `postgres://...`, `mysql://...`, `sqlite:...` | `postgres`, `mysql`, `sqlite` |
//! | you run etcd or ZooKeeper | `etcd://...`, `zookeeper://...` | `etcd`, `zookeeper` |
//! | you run Redis or Valkey, or other programs lock there | `redis://...` | `redis` |
//!
//! Use the system on which the work depends anyway: then the lock adds no outages. The feature `tls` encrypts
//! connections. The feature `cron` adds schedules by cron expressions. The features `tokio-postgres`, `sqlx-postgres`,
//! `sqlx-mysql`, `sqlx-sqlite`, `mysql_async` and `redis-client` take the settings of a client or pool that the program
//! has, and lock rows in its transactions.
//!
//! # Four rules
//!
//! 1. **The ttl is how long others wait after your process died**, not how long your work may take: a hold is renewed
//!    in the background as long as its guard lives. The default of 30 s suits most work; see [`Request::ttl`].
//! 2. **Work ends when the lock is lost.** [`Request::run`] and [`Guard::run`] cancel it. Other code looks at
//!    [`Guard::check`] before each step that others can see.
//! 3. **The token goes with each write.** A process can be paused between a check and its write. Only the protected
//!    resource can refuse that write: it remembers the largest [`Token`] that it has seen, and refuses smaller ones.
//! 4. **Release and look at the answer.** [`Guard::release`] says whether the hold lasted until now. Dropping a guard
//!    releases too, in the background, and says nothing.
//!
//! # Pitfalls
//!
//! - A guard in `let _ = ...` is dropped at once, and so released; `let _guard = ...` keeps it.
//! - One task must not wait for two names in different orders in different places: two such tasks wait for each other.
//!   One request of [`Locks::all`] takes all its names in one order.
//! - A task that waits for a name that it holds waits for itself, unless both requests have the same [`Owner`].
//! - A read before the lock was acquired is outdated under the lock: read again.
//! - One name has one kind of lock and, for a semaphore, one limit, in all programs.
//! - A blocking call in an async task blocks its executor: see [`Blocking`].
//! - A guard that crosses `fork` does nothing in the child: connect again there.
//!
//! # What is not promised
//!
//! - That at most one process works at any moment. A paused process cannot know that its lease ran out. With a fence,
//!   at most one process *writes*.
//! - More than the engine keeps: a Redis that forgets acknowledged writes after a restart or a fail-over forgets locks,
//!   too. [`Locks::guarantee`] says which settings of your server lower the promise.
//! - An order between leasehold and other lock programs. Among programs with leasehold, a queue is first come, first
//!   served where [`Profile::fifo`] says so.
//! - That a wait ends if programs wait for each other: give a limit by [`Request::acquire_within`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connect;
#[cfg(feature = "cron")]
mod cron;
mod duration;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod encryption;
pub mod engine;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "redis", feature = "etcd"))]
mod fence;
#[cfg(all(feature = "file", target_os = "linux"))]
mod file;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod handles;
mod inspect;
mod locks;
#[cfg(feature = "metrics")]
mod metrics;
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
#[cfg(feature = "test")]
pub mod test;
#[cfg(feature = "tls")]
mod tls;
mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use connect::Connect;
#[cfg(feature = "cron")]
pub use cron::Cron;
pub use duration::parse_duration;
#[cfg(feature = "etcd")]
pub use etcd::EtcdFence;
pub use leasehold_core::{
    Acquire, AcquireAll, Actor, All, Arrivals, Blocking, BlockingAll, Breaking, Broken, Candidate, ClaimId,
    Credentials, Diagnostic, Due, Election, Error, ErrorKind, Event, Every, Finding, Guarantee, Guard,
    GuardEnd, Guards, Handle, HolderProcess, HolderView, Keeper, LastTick, Latch, Leader, LeaderWatch,
    Leadership, Leading, Level, Life, Lineage, Loss, MAX_NAME_BYTES, MAX_NAMES_AT_ONCE, Missed, Mode, Modes,
    Name, NotConverted, Observe, Once, OnceError, Owner, Pace, Password, Previous, Profile, Ran, Request,
    Role, RunError, Rw, Schedule, Severity, Stop, Striped, Tick, TickError, TickRequest, Ticked, TimeChange,
    Timetable, Token, Verb, View, WaiterView, WhenUnreachable, stripe_name,
};
#[doc(hidden)]
pub use leasehold_core::{Notices, OnceTurn};
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
pub use locks::Locks;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
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

    #[cfg(feature = "memory")]
    #[doc = include_str!("../../../docs/elections-and-once.md")]
    struct ElectionsAndOnce;

    #[cfg(feature = "memory")]
    #[doc = include_str!("../../../docs/schedules-and-latches.md")]
    struct SchedulesAndLatches;

    #[doc = include_str!("../../../docs/migrating.md")]
    struct Migrating;

    #[cfg(feature = "memory")]
    #[doc = include_str!("../../../docs/deadlocks.md")]
    struct Deadlocks;

    #[cfg(feature = "metrics")]
    #[doc = include_str!("../../../docs/observability.md")]
    struct Observability;

    #[cfg(feature = "test")]
    #[doc = include_str!("../../../docs/testing-code-that-locks.md")]
    struct TestingCodeThatLocks;
}

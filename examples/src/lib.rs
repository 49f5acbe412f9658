//! The common parts of the scenarios.
//!
//! Each scenario is one program. A process of the program that a person starts is the *boss*: it creates a directory,
//! starts the program several times as *workers*, waits for them, checks the result, and exits with 1 if anything is
//! wrong. The boss and the workers share a [`Floor`].
//!
//! - `arguments`: the command line of a scenario.
//! - `floor`: the directory of files that the boss and the workers share, and where the locks and the data are.
//! - `overlap`: makes the section of the first holder slow, so that a lock that does not exclude shows it in every run.
//! - `protection`: the lock of a scenario: leasehold, a lock of an article, or none.
//! - `redis_data`, `sql_data`: data in Redis, PostgreSQL or MySQL.
//! - `run`: starts the boss or a worker.
//! - `server`: the servers that a scenario starts for itself.
//! - `textbook`: the locks of articles, with their mistakes.

mod arguments;
mod floor;
mod overlap;
mod protection;
mod redis_data;
mod run;
mod server;
mod sql_data;
mod textbook;

pub use arguments::{Data, Scenario, TextbookPlace};
pub use floor::{Floor, check, failures, is_fenced, wait_until};
pub use overlap::{Overlap, Slow};
pub use protection::{Hold, Protection, WorkerLocks};
pub use redis_data::RedisData;
pub use run::run;
pub use sql_data::Sql;
pub use textbook::{Owner, Release, Textbook, TextbookHold};

/// The ttl of leases in scenarios in which workers are killed. With a server, the other workers wait this long for the
/// lock of a killed worker; with lock files on one host they do not wait at all. A lease is renewed after a third of
/// its ttl. The other two thirds are a reserve, because a machine with many more processes than processors may not run
/// a process for seconds.
pub const TTL: std::time::Duration = std::time::Duration::from_secs(10);

/// The error of a scenario.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

//! Tests of real engines under faults. `cargo xtask torture` is the entry point; each case of the fault matrix is a
//! test in `tests/`.
//!
//! - [`client`]: a process that works under locks and records a history; [`task`], [`section`]: its work;
//!   `set`, `election`, `once`: requests for several names, elections, and work that is done one time; `patience`: how
//!   long a task waits.
//! - [`results`]: the protected resources, with a fence and without.
//! - [`round`]: one round with its seed: clients, faults, and at the end the verdict. [`world`]: an engine with its
//!   clients and faults, in a file for each engine: [`served`] with [`redis`], [`etcd`], [`zookeeper`], [`postgres`],
//!   [`mariadb`], [`session`], [`row`] and [`foreign_table`]; [`cluster_under_fault`]: three servers of one cluster;
//!   [`mod@file`], [`sqlite`], [`memory`]; [`speed`]: the leases and delays of an engine.
//! - [`holder`]: a holder process that executes the commands of a test. [`turns`]: a process that shares a lock with
//!   other programs.
//! - [`fenced`]: lost updates with and without a fence. [`torture`]: many rounds and their sums.

pub mod adjusted_history;
pub mod client;
pub mod cluster_under_fault;
mod doubts;
pub mod dropped;
mod election;
pub mod etcd;
pub mod fault_run;
pub mod fenced;
pub mod figures;
pub mod file;
pub mod foreign_table;
pub mod heartbeat;
pub mod holder;
mod lost_votes;
pub mod mariadb;
pub mod memory;
pub mod observer;
mod once;
mod patience;
pub mod postgres;
mod proxied;
pub mod redis;
pub mod results;
pub mod rng;
pub mod round;
pub mod row;
pub mod section;
pub mod served;
pub mod session;
mod set;
mod shows;
pub mod speed;
pub mod sqlite;
mod start_up;
pub mod task;
pub mod torture;
pub mod totals;
pub mod turns;
pub mod verdict;
mod waits;
pub mod workers;
pub mod world;
pub mod zookeeper;

/// The error that ends a round.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

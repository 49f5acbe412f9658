//! Tests real engines under faults. `cargo xtask torture` is the entry point; each row of the fault matrix is a test in
//! `tests/`.
//!
//! - [`client`]: a process that works under locks and records what it sees; [`task`], [`section`]: its work.
//! - [`results`]: the protected resources, with a fence and without.
//! - [`round`]: one seed: clients, faults, and at the end the verdict. [`world`]: the parts and the faults of an
//!   engine, in a file for each: [`served`] with [`redis`], [`etcd`], [`zookeeper`], [`postgres`] and [`mariadb`];
//!   [`struck`]: three servers of one cluster; [`mod@file`], [`sqlite`], [`memory`]; [`speed`]: its leases and delays.
//! - [`holder`]: a process that obeys the tests of the fault matrix. [`turns`]: a process that takes turns with other
//!   programs.
//! - [`fenced`]: lost updates with and without a fence. [`torture`]: many rounds, and their sums.

pub mod adjusted_history;
pub mod client;
pub mod cluster_under_fault;
mod doubts;
pub mod dropped;
pub mod etcd;
pub mod fault_run;
pub mod fenced;
pub mod figures;
pub mod file;
pub mod heartbeat;
pub mod holder;
pub mod mariadb;
pub mod memory;
pub mod observer;
pub mod postgres;
mod proxied;
pub mod redis;
pub mod results;
pub mod rng;
pub mod round;
pub mod section;
pub mod served;
pub mod speed;
pub mod sqlite;
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

//! Real engines under faults. `cargo xtask torture` is the door; each row of the fault matrix is a test in `tests/`.
//!
//! - [`client`]: a process that works under locks and writes down what it sees; [`task`], [`section`]: what it does.
//! - [`results`]: the protected resources, with a fence and without.
//! - [`round`]: one seed: clients, faults, and at the end the verdict. [`world`]: what an engine is made of and which faults it
//!   may meet, in a file for each: [`served`] with [`redis`], [`etcd`], [`zookeeper`], [`postgres`] and [`mariadb`]; [`struck`]: three
//!   servers of one cluster; [`mod@file`], [`sqlite`], [`memory`]; [`speed`]: how quick it is.
//! - [`holder`]: a process that does what a row of the matrix tells it. [`turns`]: one that takes turns with programs of others.
//! - [`fenced`]: lost updates with and without a fence. [`torture`]: many rounds, and their sums.

pub mod client;
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
pub mod postgres;
mod proxied;
pub mod redis;
pub mod results;
pub mod retold;
pub mod rng;
pub mod round;
pub mod section;
pub mod served;
pub mod speed;
pub mod sqlite;
pub mod struck;
pub mod task;
pub mod torture;
pub mod totals;
pub mod truth;
pub mod turns;
pub mod verdict;
mod waits;
pub mod workers;
pub mod world;
pub mod zookeeper;

/// Whatever stops a round.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

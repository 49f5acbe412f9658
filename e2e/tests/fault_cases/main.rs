//! The fault matrix: each row is a test with the number of the row, and with random times. `docs/proof.md` has all rows
//! and where each is tested; the rows of Redlock and of databases are tested in the crates of these engines.
//!
//! These rows are tested in other crates instead, which have the parts that they need:
//!
//! | row | fault | test |
//! |---|---|---|
//! | F21 | a child process of a fork drops the guard | `leasehold-core`, `locks/fork.rs` |
//! | F23 | the command is killed or its lease ends while its child runs | `leasehold-cli`, `processes.rs`, `redis.rs` |
//! | F25 | a promoted replica lacks the newest grant | `leasehold-redis`, `redis/sentinel_failovers.rs` |
//! | F26 | a master is killed after all replicas have a grant | `leasehold-redis`, `redis/replicated.rs` |
//! | F27 | too few replicas have a grant | `leasehold-redis`, `redis/replicated.rs` |
//! | F28 | a master that lost its replicas | `leasehold-redis`, `redis/replicated.rs` |
//! | F40 | one of several readers expires; a writer and a later reader wait | `leasehold-redis`, `redis/readers.rs` |
//! | F67 | lock files on a network file system | `leasehold-core`, `file/far.rs` |
//! | F74 | two clients take two names in two orders | no request takes several names yet |
//! | F76 | two layouts of keys | `leasehold-redis`, `redis/foreign.rs`; the file engine's in `file/state.rs` |

#![expect(clippy::unwrap_used, reason = "tests")]

mod clocks;
mod crowd;
mod crowds;
mod etcd_cluster;
mod etcd_leases;
mod etcd_names;
mod etcd_notifications;
mod etcd_restored;
mod etcd_rig;
mod etcd_silence;
mod executors;
mod fences;
mod files;
mod forgetting;
mod options;
mod pauses;
mod refusals;
mod rig;
mod wires;
mod zookeeper_ensemble;
mod zookeeper_rig;
mod zookeeper_sessions;

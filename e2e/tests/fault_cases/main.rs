//! The fault matrix, row by row: each is a test with the number of its row, with a random phase. All rows stand in
//! `docs/proof.md`, with where each is tested: those of Redlock and of databases in the crates of these engines.
//!
//! Other rows that are tested elsewhere, because they need what only is there:
//!
//! | row | fault | test |
//! |---|---|---|
//! | F21 | a child process of a fork drops the guard | `leasehold-core`, `locks/fork.rs` |
//! | F23 | the command is killed while its child runs; the lease is lost meanwhile | `leasehold-cli`, `cli/processes.rs`, `cli/redis.rs` |
//! | F25 | a master is cut off, another promoted that lacks the newest grant | `leasehold-redis`, `redis/sentinel_failovers.rs` |
//! | F26 | the master is killed when all replicas have a grant; the label claims no more | `leasehold-redis`, `redis/replicated.rs` |
//! | F27 | too few replicas have a grant | `leasehold-redis`, `redis/replicated.rs` |
//! | F28 | a master that lost its replicas | `leasehold-redis`, `redis/replicated.rs` |
//! | F40 | a reader that lapses among others, a writer in line, a later reader | `leasehold-redis`, `redis/readers.rs` |
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

//! Tests of the built command, on private lock directories, with real processes and signals.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod elect;
mod etcd;
mod etcd_cluster;
mod etcd_limits;
mod etcd_schedule;
mod fixture;
mod groups;
mod healthy;
mod help;
mod inspect;
mod knobs;
mod leaf;
mod loss;
mod once;
mod options;
mod processes;
mod progress;
mod redis;
mod redis_groups;
mod report;
mod run;
mod session;
mod several;
mod shared;
mod signals;
mod silent;
mod sql;
mod start;
mod terminal;
mod tools;
mod tree;
mod url;
mod zookeeper;
mod zookeeper_limits;

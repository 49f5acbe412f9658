//! Tests beside other lock packages from their registries: leasehold and each package exclude and wake each other.
//! docs/recipes/other-programs.md has a row for each package.

#![expect(clippy::unwrap_used, reason = "tests")]

mod etcd;
mod files;
mod go;
mod groups;
mod java;
mod journal;
mod packages;
mod redis;
mod redis_by_hand;
mod redisson;
mod redlock;
mod sql;
mod sql_tables;
mod turns;
mod zookeeper;

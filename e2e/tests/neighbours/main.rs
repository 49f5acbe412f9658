//! Beside programs that lock with packages of others, from their registries: whether we exclude each other, and wake each
//! other. docs/recipes/other-programs.md has a row for each.

#![expect(clippy::unwrap_used, reason = "tests")]

mod files;
mod go;
mod groups;
mod java;
mod journal;
mod packages;
mod redis;
mod redisson;
mod redlock;
mod turns;

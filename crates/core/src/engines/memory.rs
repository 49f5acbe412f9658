//! The memory engine: locks inside one process. The reference for all other engines, and the oracle of the tests.
//!
//! A [`MemoryStore`] acts as the server; each [`MemoryEngine`] is one client of it, as a process is one client of a
//! real server. All engines on one store compete for the same locks.

mod claim_all;
mod conversions;
mod diagnose;
mod engine;
mod inspect;
mod memos;
mod named;
mod shard;
mod store;
mod views;

#[cfg(test)]
mod tests;

pub use engine::MemoryEngine;
pub use store::{MemoryStore, REQUEST_LIFE, TTL};

//! The memory engine: locks inside one process. The reference for all other engines, and the oracle of the tests.
//!
//! A [`MemoryStore`] plays the server; each [`MemoryEngine`] is one client of it, as a process would be one client of a
//! real server. Engines over one store exclude each other.

mod engine;
mod inspect;
mod named;
mod shard;
mod store;

#[cfg(test)]
mod tests;

pub use engine::MemoryEngine;
pub use store::{MemoryStore, REQUEST_LIFE, TTL};

//! Locks that belong to a session of the database and need no tables.
//!
//! One connection of a process has the locks of all its claims. A database lets a session take its own lock again, so
//! claims of one process exclude each other in memory, before the server is asked.

mod client;
mod engine;
pub(crate) mod guarantee;
pub(crate) mod lock_key;
pub(crate) mod options;
mod poll;
pub(crate) mod server;
pub(crate) mod table;

pub use self::{engine::SessionEngine, options::SessionOptions};

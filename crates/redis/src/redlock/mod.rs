//! Redlock: locks that a majority of independent servers (the nodes) grants; the nodes do not know each other.
//!
//! Each node is a server with one connection, and answers for each claim whether the claim has its vote
//! (`lua/redlock`). The client decides from the votes of a majority: the modules `tally` and `offset` do so without
//! clock and I/O. Documentation for users: `docs/engines/redlock.md`; why a token is written on a majority:
//! `docs/decisions/0018-a-token-on-a-majority.md`; a model of this engine is in `model/src/redlock`.

mod agreement;
mod claim;
mod config;
mod diagnose;
mod engine;
mod guarantee;
mod hold;
mod inspect;
mod messages;
mod node;
mod node_requests;
mod offset;
mod pending_releases;
mod ready;
mod tally;
mod url;

pub use config::RedlockConfig;
pub use engine::RedlockEngine;

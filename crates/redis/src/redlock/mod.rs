//! Redlock: locks on a majority of independent servers, of which none knows of another.
//!
//! Each node is a server with one connection, and says about each claim whether it has its vote (`lua/redlock`). What a majority of
//! votes comes to is decided here: `tally` and `offset` are pure. Documentation for users: `docs/engines/redlock.md`; why there
//! are tokens: `docs/decisions/0018-a-token-on-a-majority.md`, searched in `model/src/redlock`.

mod agreement;
mod claim;
mod config;
mod debts;
mod engine;
mod guarantee;
mod hold;
mod inspect;
mod node;
mod offset;
mod ready;
mod round;
mod tally;
mod url;
mod words;

pub use config::RedlockConfig;
pub use engine::RedlockEngine;

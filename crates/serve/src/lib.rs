//! The page for operators, as `leasehold serve` serves it: who holds what, who waits, what happened in the last day,
//! and a way to end a hold.
//!
//! It looks at the engines by `list`, and stores nothing that locks need. A part of the command `leasehold`: its
//! interface changes between releases.
//!
//! - [`settings`]: what it is started with, and what is refused. [`server`]: the listener and its connections.
//! - `looker`, `row`, `history`, `table`: what is shown, made from the answers of the engines.
//! - `guard`: who may send which request. `secret`: the files with tokens.
//! - `pages`, `picture`, `events`, `html`: the pages, and the changes that are pushed to them. `metrics`: the same for
//!   Prometheus.
//! - `breaking`: how a hold is ended, with the record of it.

mod breaking;
mod events;
mod guard;
mod history;
mod html;
mod looker;
mod metrics;
mod pages;
mod picture;
mod router;
mod row;
mod secret;
pub mod server;
pub mod settings;
mod state;
mod table;
mod time;
mod tls;

pub use server::Server;
pub use settings::{EngineSource, ProxySettings, Settings, StartError, TlsFiles};

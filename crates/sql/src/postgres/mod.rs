//! PostgreSQL: its part of the engine, and the tables that it uses.

mod apply;
mod apply_all;
mod config;
mod conn;
mod database;
pub(crate) mod diagnose;
pub(crate) mod dial;
pub(crate) mod error;
pub(crate) mod guarantee;
mod listener;
mod memos;
pub(crate) mod messages;
mod notification_handler;
pub(crate) mod notification_text;
mod passfile;
mod pool;
mod row_hold;
mod rows;
mod server;
mod server_start;
mod session;
mod statements;
mod stream;
pub(crate) mod tables;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;

use leasehold_core::Env;

use self::database::Postgres;
pub use self::{config::Config, row_hold::row_engine, server::PARAMETERS, session::session_engine};
pub use crate::SessionOptions;
use crate::{ForeignTable, ForeignTableEngine, SqlEngine, client::Client, row::ClientId};

/// Locks in the tables of a PostgreSQL database. This function does not connect to it; the first request does.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn engine(config: Config, env: &Env) -> SqlEngine {
    let id = ClientId(env.lineage().get() as u64);
    let connections = config.connections;
    let postgres = Arc::new(Postgres::new(config, id));
    let client = Client::new(Arc::clone(&postgres) as _, id, env, connections);
    postgres.listener.set_client(Arc::downgrade(&client));
    SqlEngine::of(client, "postgres", Some(postgres.contact()))
}

/// Locks in a table of another program in a PostgreSQL database. This function does not connect to it; the first
/// request does.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn foreign_table_engine(config: Config, table: ForeignTable, env: &Env) -> ForeignTableEngine {
    crate::foreign_table::postgres::engine(config, table, env)
}

/// The statements that create the tables, for users who create them in another way.
pub const SCHEMA: &str = concat!(include_str!("sql/schema.sql"), include_str!("sql/schema_memo.sql"));

/// The part of [`SCHEMA`] that creates the table of memos.
const MEMO_SCHEMA: &str = include_str!("sql/schema_memo.sql");

//! MySQL and MariaDB: their part of the engine, and the tables that they use.

mod apply;
mod apply_all;
mod config;
pub(crate) mod conn;
mod database;
mod definitions;
pub(crate) mod diagnose;
mod dial;
pub(crate) mod error;
mod fast_path;
mod fast_path_one;
pub(crate) mod first_second;
pub(crate) mod guarantee;
mod memos;
mod pool;
mod relay;
mod row_hold;
mod rows;
pub(crate) mod server;
mod session;
pub(crate) mod statements;
mod tables;
pub(crate) mod text;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;

use leasehold_core::{Contact, Env, Modes};

pub use self::{config::Config, row_hold::row_engine};
use self::{database::Mysql, session::Sessions};
pub use crate::SessionOptions;
use crate::{ForeignTable, ForeignTableEngine, SessionEngine, SqlEngine, client::Client, row::ClientId};

/// Locks in the tables of a MySQL or MariaDB database. This function does not connect to it; the first request does.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn engine(config: Config, env: &Env) -> SqlEngine {
    let id = ClientId(env.lineage().get() as u64);
    let connections = config.connections;
    let mysql = Mysql::new(config, id, Arc::clone(&env.clock));
    let contact = mysql.pool.contact.clone();
    SqlEngine::of(Client::new(Arc::new(mysql), id, env, connections), "mysql", Some(contact))
}

/// Locks of one session of a MySQL or MariaDB server, by `GET_LOCK`, without tables. This function does not connect to
/// the server; the first request does. All locks of the engine are on one connection.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn session_engine(config: Config, options: SessionOptions, env: &Env) -> SessionEngine {
    let contact = Contact::default();
    let server = Arc::new(Sessions::new(config, options, Arc::clone(&env.clock), contact.clone()));
    // GET_LOCK has no shared locks.
    SessionEngine::of(server, "mysql", Modes::Exclusive, contact, env)
}

/// Locks in a table of another program in a MySQL or MariaDB database. This function does not connect to it; the first
/// request does.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
#[must_use]
pub fn foreign_table_engine(config: Config, table: ForeignTable, env: &Env) -> ForeignTableEngine {
    crate::foreign_table::mysql::engine(config, table, env)
}

/// The statements that create the tables, for users who create them in another way.
pub const SCHEMA: &str = concat!(
    include_str!("sql/schema.sql"),
    include_str!("sql/schema_memo.sql"),
    include_str!("sql/schema_meta.sql")
);

/// The part of [`SCHEMA`] that creates the table of memos.
const MEMO_SCHEMA: &str = include_str!("sql/schema_memo.sql");

/// The statements that grant a user the rights to lock in tables that another user created.
pub const GRANTS: &str = include_str!("sql/grants.sql");

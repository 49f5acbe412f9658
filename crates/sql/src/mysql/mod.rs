//! MySQL and MariaDB: their part of the engine, and the tables that they use.

mod apply;
mod config;
mod conn;
mod database;
mod definitions;
mod dial;
mod error;
mod fast_path;
mod fast_path_one;
mod guarantee;
mod pool;
mod relay;
mod rows;
mod server;
mod statements;
mod tables;
mod text;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;

use leasehold_core::Env;

pub use self::config::Config;
use self::database::Mysql;
use crate::{SqlEngine, client::Client, row::ClientId};

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

/// The statements that create the tables, for users who create them in another way.
pub const SCHEMA: &str = include_str!("sql/schema.sql");

/// The statements that grant a user the rights to lock in tables that another user created.
pub const GRANTS: &str = include_str!("sql/grants.sql");

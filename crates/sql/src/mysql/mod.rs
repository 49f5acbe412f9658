//! MySQL and MariaDB.

mod apply;
mod config;
mod conn;
mod database;
mod dial;
mod error;
mod guarantee;
mod made;
mod one;
mod pool;
mod quick;
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

/// Locks in the tables of a MySQL or MariaDB database. It is contacted at the first request, not here.
///
/// The futures of this engine run on a tokio runtime with its timers and I/O, as the keeper's.
#[must_use]
pub fn engine(config: Config, env: &Env) -> SqlEngine {
    let id = ClientId(env.lineage().get() as u64);
    let mysql = Mysql::new(config, id, Arc::clone(&env.clock));
    let contact = mysql.pool.contact.clone();
    SqlEngine::of(Client::new(Arc::new(mysql), id, env), "mysql", Some(contact))
}

/// What makes the tables, for who does so otherwise.
pub const SCHEMA: &str = include_str!("sql/schema.sql");

/// What a user needs who locks in tables that another made.
pub const GRANTS: &str = include_str!("sql/grants.sql");

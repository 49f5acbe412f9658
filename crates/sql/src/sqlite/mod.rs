//! SQLite: a file on this machine.
//!
//! Every process has one thread that writes, and what many tasks want at once is one transaction. Times are those of the clock that
//! counts since the machine was started, which all its processes share and nobody can set.

mod boot;
mod database;
mod error;
mod file_watch;
mod guarantee;
mod location;
mod look;
mod made;
mod opened;
mod patience;
pub(crate) mod rows;
mod source;
mod tables;
mod transaction;
mod worker;

use std::{path::Path, sync::Arc};

use leasehold_core::{Env, Error};

use self::database::Sqlite;
use crate::{SqlEngine, client::Client, row::ClientId};

/// Locks in the tables of an SQLite database, which is made if it is not there. It is opened at the first request, not here.
///
/// A database that is there may have other tables; it keeps its locks in a write-ahead log from then on, as all else in it.
///
/// The futures of this engine run on a tokio runtime with its timers and I/O, as the keeper's.
///
/// # Errors
/// [`is_misconfigured`](Error::is_misconfigured) for a path that is not absolute.
pub fn engine(path: &Path, env: &Env) -> Result<SqlEngine, Error> {
    if !path.is_absolute() {
        return Err(Error::misconfigured(format!(
            "the path {} is not absolute: an sqlite URL is written like sqlite:///path/to/file.db",
            path.display()
        )));
    }
    let id = ClientId(env.lineage().get() as u64);
    let sqlite = Sqlite::new(path.to_owned(), id, Arc::clone(&env.clock));
    Ok(SqlEngine::of(Client::new(Arc::new(sqlite), id, env), "sqlite", None))
}

/// What makes the tables, for who does so otherwise.
pub const SCHEMA: &str = include_str!("sql/schema.sql");

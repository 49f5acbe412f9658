//! SQLite: a file on this machine.
//!
//! Each client has one thread that uses the file, and requests of many tasks share one transaction. Times are those of
//! the clock that counts since the boot of the machine. All processes of the machine share this clock, and no user can
//! set it.

mod boot_id;
mod busy_retry;
mod changes;
mod database;
mod definitions;
mod diagnose;
mod error;
mod file_watch;
mod guarantee;
mod location;
mod look;
mod memos;
mod opened;
mod resources;
pub(crate) mod rows;
mod tables;
mod transaction;
mod worker;

use std::{path::Path, sync::Arc};

use leasehold_core::{Env, Error};

use self::database::Sqlite;
use crate::{
    SqlEngine,
    client::{CONNECTIONS, Client},
    row::ClientId,
};

/// Locks in the tables of an SQLite database, which is created if it does not exist. This function does not open it;
/// the first request does.
///
/// An existing database can have other tables. From the moment when leasehold opens it to lock, the database has a
/// write-ahead log, which applies to all its tables, also to those of other programs.
///
/// The futures of this engine need a tokio runtime with timers and I/O, such as the runtime of the keeper.
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
    Ok(SqlEngine::of(Client::new(Arc::new(sqlite), id, env, CONNECTIONS), "sqlite", None))
}

/// The statements that create the tables, for users who create them in another way.
pub const SCHEMA: &str = include_str!("sql/schema.sql");

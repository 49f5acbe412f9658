//! `leasehold schema`: prints the SQL that creates the tables of an SQL engine.

use super::{connect, print};
use crate::exit::{self, Failure};

/// Prints the statements. Does not connect.
pub(crate) fn schema(url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    match sql_schema(&locks) {
        Some(schema) => print(schema),
        None => Err(Failure::new(
            exit::CONFIG,
            format!(
                "{} has no tables: only postgres, mysql and sqlite have a schema",
                locks.profile().engine
            ),
        )),
    }
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
fn sql_schema(locks: &leasehold::Locks) -> Option<&'static str> {
    locks.sql_schema()
}

#[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
fn sql_schema(_: &leasehold::Locks) -> Option<&'static str> {
    None
}

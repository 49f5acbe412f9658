//! When a server started, which includes a start after a crash: no lock outlives it, and the numbers of the log before
//! and after it cannot be compared.

use std::time::Duration;

use leasehold_core::Lineage;
use tokio_postgres::Client;

use super::{
    error::{Stage, classify},
    rows::column,
};
use crate::database::Failed;

const SERVER_START: &str = include_str!("sql/server_start.sql");

/// The last start of a server.
pub(super) struct ServerStart {
    /// Tells apart the servers, and the starts of one server.
    pub(super) lineage: Lineage,
    /// For how long the locks of the server exist.
    pub(super) age: Duration,
}

impl ServerStart {
    /// Asks the server.
    pub(super) async fn read(client: &Client) -> Result<Self, Failed> {
        let row = client.query_typed_one(SERVER_START, &[]).await;
        let row = row.map_err(|error| classify(&error, Stage::BeforeCommit))?;
        let (system, started, age): (i64, i64, i64) = (column(&row, 0)?, column(&row, 1)?, column(&row, 2)?);
        let lineage = u128::from(system.cast_unsigned()) << 64 | u128::from(started.cast_unsigned());
        let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
        Ok(Self { lineage: Lineage::new(lineage), age })
    }
}

//! Rows of another program (`hold=row`) on PostgreSQL and MariaDB: a hold is the lock of a row in an open transaction.
//!
//! The label is best effort in every configuration, for one reason only: the server frees a row as soon as it ends the
//! session, and nothing waits until the holder knows. So exclusion is promised as long as no session of a live process
//! ends, and there are two kinds of rounds:
//!
//! - Odd seeds require exclusion. Processes are stopped and killed, the network is silent or late, the server is
//!   stopped, and another program locks rows.
//! - Even seeds require no exclusion. Servers restart, operators end sessions, connections are cut. A hold of an ended
//!   session is invalid within its ttl, and the fence holds.

mod mariadb;
mod postgres;

pub use mariadb::Rows as MariadbRows;
pub use postgres::Rows as PostgresRows;

use crate::task::LOCKS;

/// The name of the engine on PostgreSQL.
pub const POSTGRES: &str = "postgres-row";
/// The name of the engine on MariaDB.
pub const MARIADB: &str = "mariadb-row";

/// The fault in which another program has locked rows.
pub(crate) const LOCKED_BY_OTHER: &str = "rows locked by another program";

/// The statements that create the table of xxl-job, with a row for each lock.
fn create() -> String {
    let rows = LOCKS.map(|lock| format!("('{lock}')")).join(", ");
    format!(
        "CREATE TABLE xxl_job_lock (lock_name varchar(50) NOT NULL PRIMARY KEY); \
         INSERT INTO xxl_job_lock VALUES {rows}"
    )
}

/// The options of the URL.
const OPTIONS: &str = "hold=row&table=xxl_job_lock&column=lock_name";
/// The rows that another program locks, if they are free. It does not wait, because a holder may be stopped for as long
/// as this statement takes.
const OTHERS: &str =
    "SELECT lock_name FROM xxl_job_lock WHERE lock_name IN ('m0', 'r0') FOR UPDATE SKIP LOCKED";

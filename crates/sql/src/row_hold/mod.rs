//! Holds in rows of other programs: a hold is the lock of an existing row (`SELECT ... FOR UPDATE`) in a transaction of
//! ours, which stays open as long as the hold. A hold needs a connection of its own; a waiting claim needs none,
//! because it asks without waiting in the server.

use leasehold_core::{Fault, Guarantee, Level};

use crate::database::Failed;

mod claims;
mod client;
mod engine;
mod server;
mod table;

#[cfg(any(feature = "mysql", test))]
pub(crate) use self::server::LONGEST_TTL;
#[cfg(feature = "postgres")]
pub(crate) use self::server::RowHolder;
pub(crate) use self::{
    client::EndReport,
    server::{LookedRow, MAX_LISTED, RowServer, RowSession, TryLock},
};
pub use self::{engine::RowEngine, table::RowTable};

/// The guarantee of every server. No setting can change that the server frees a row as soon as it ends the session, and
/// that the next holder does not wait until this process knows.
pub(crate) fn guarantee() -> Guarantee {
    let note = "each hold is an open transaction, which keeps the server from removing old versions of rows";
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[note]);
    let risk = "if the server ends the session, restarts or fails over, another program can lock the row before this process is notified";
    guarantee.lower("hold", "row", "lease", risk);
    guarantee
}

/// The error for a name that several rows have.
pub(crate) fn several_rows(row: &str) -> Failed {
    let message =
        format!("several rows match {row}: add and=COLUMN:VALUE to the URL, so that one row matches");
    Failed::new(Fault::Misconfigured, message)
}

/// The error for a row that the server refuses to create, for example because its name is too long, or because another
/// column has no default.
fn not_created(failed: Failed) -> Failed {
    match failed.fault {
        Fault::Internal | Fault::Misconfigured => {
            Failed::new(Fault::Misconfigured, format!("the row cannot be created: {}", failed.message))
        }
        _ => failed,
    }
}

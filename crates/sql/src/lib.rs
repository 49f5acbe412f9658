//! Locks in tables of a database that a team runs already.
//!
//! A name has a row; what it has beyond one exclusive hold has rows of its own. A free name is taken by one statement. All else is a
//! short transaction under the lock of the name's row: the rows are read, the rules of the memory engine are applied to them
//! ([`LockState`](leasehold_core::lock_state::Queue)), and what changed is written, among it the hand-over to whoever is next. So the rules
//! are the same everywhere, and a dialect only says how rows are read and written.
//!
//! Expiry is decided by the database's clock alone, read while the row is locked; how long a hold may be believed in, by the
//! holder's own, from before its request left.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "without a database nothing is asked of one")
)]

mod batch;
mod client;
mod database;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod encryption;
mod engine;
mod fence;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod minder;
#[cfg(feature = "mysql")]
pub mod mysql;
mod poll_interval;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod returned;
mod row;
mod runtime;
mod slots;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod step;
mod waiting_claims;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use encryption::Encryption;
pub use engine::SqlEngine;
pub use fence::Fence;
#[cfg(feature = "tls")]
pub use leasehold_tls::{Tls, Verify};

//! Locks in tables of a database that a team already runs.
//!
//! Each name has one row; claims beyond one exclusive hold have rows of their own. One statement acquires a free name
//! (the fast path). Everything else is a short transaction under the lock of the name's row: it reads the rows, applies
//! the rules of the memory engine ([`LockState`](leasehold_core::lock_state::LockState)), and writes the changes,
//! including the grant to the next waiter. So the rules are the same for all databases, and a dialect only implements
//! how rows are read and written.
//!
//! Only the clock of the database decides whether a hold has expired. It is read while the row is locked. A holder
//! itself judges by its own clock how long its hold is valid, counted from before its request was sent.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "without a database the common code is unused")
)]

mod batch;
mod claim_all;
mod client;
mod connection_slots;
mod convert;
mod database;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod diagnose;
mod dialect;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod encryption;
mod engine;
mod fence;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod foreign_table;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod maintenance;
mod memo;
#[cfg(feature = "mysql")]
pub mod mysql;
mod poll_interval;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod pool_wait;
#[cfg(feature = "postgres")]
pub mod postgres;
mod prefixed;
mod row;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod row_hold;
#[cfg(any(feature = "mysql_async", feature = "sqlx", feature = "tokio-postgres"))]
mod row_lock;
mod runtime;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod session;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub mod sqlite;
mod step;
mod step_all;
mod waiting_claims;

pub use dialect::Dialect;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use encryption::Encryption;
pub use engine::SqlEngine;
pub use fence::{Fence, FenceStatement, Fenced};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use foreign_table::{ForeignTable, ForeignTableEngine, LAYOUT_WORDS, Layout};
#[cfg(feature = "tls")]
pub use leasehold_tls::{Tls, Verify};
pub use prefixed::Prefixed;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use row_hold::{RowEngine, RowTable};
#[cfg(any(feature = "mysql_async", feature = "sqlx", feature = "tokio-postgres"))]
pub use row_lock::{
    OnceIn, OnceInCall, OnceInTable, OnceInTurn, RowHolds, RowLock, RowLockError, RowLockErrorKind,
    RowTransaction, once_in, row_lock,
};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use session::{SessionEngine, SessionOptions};

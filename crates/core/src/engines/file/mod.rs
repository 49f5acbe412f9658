//! The file engine: kernel locks in a directory of one host.
//!
//! Exact, not leased: a hold ends when it is released or its process is gone, never by time. A stopped holder keeps
//! its lock, a killed one frees it at once. Each name has two files:
//!
//! - `<name>.lock` is only ever locked: with `flock`, so that util-linux `flock(1)` on the same file excludes us and
//!   we exclude it, and with byte-range locks far beyond its end (`locks`). It is never read, written or unlinked.
//! - `.state/<name>.lock` holds the token counter and the table of holders and waiters (`layout`).
//!
//! A free name is taken with one `flock` and one write, without the table. Everybody else stands in the table, in the
//! order of arrival, and is rung by whoever lets go (`wake_pipe`, `listener`). Every verb runs on the caller's thread and
//! never waits for another process.

mod breaking;
mod claims;
mod clock;
mod dir;
mod encode;
mod engine;
mod error;
mod far;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod idle;
mod inspect;
mod kernel;
mod layout;
mod listener;
mod lock_dir;
mod locks;
mod open;
mod proc;
mod promise;
mod ready;
mod record;
mod release;
mod series;
mod state;
mod table;
mod take;
mod tokens;
mod wait_order;
mod wake_pipe;

pub use clock::boot_time_ahead;
pub use dir::network_file_system;
pub use engine::FileEngine;

#[cfg(test)]
mod tests;

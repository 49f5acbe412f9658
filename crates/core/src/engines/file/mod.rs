//! The file engine: kernel locks on files in a directory of one host.
//!
//! A hold is exact, not leased: it ends when it is released or when its process ends, never by time. A holder that is
//! paused (SIGSTOP) keeps its lock; the end of a killed holder frees its lock at once. Each name has two files:
//!
//! - `<name>.lock` carries kernel locks only: `flock`, so that util-linux `flock(1)` on the same file excludes us and
//!   we exclude it, and byte-range locks far beyond the end of the file (`locks`). The content of the file is never
//!   read or written, and the file is never unlinked.
//! - `.state/<name>.lock` stores the token counter and the table of holders and waiters (`layout`).
//!
//! A third file, `.state/<name>.memo`, exists while the name has a memo (`memo`).
//!
//! The fast path takes a free name with one `flock` and one write, without the table. Every other claim is in the
//! table, in the order of arrival, and is woken by the release of a hold (`wake_pipe`, `listener`). Every verb runs
//! on the caller's thread and never waits for another process.

mod breaking;
mod claims;
mod diagnose;
mod dir;
mod engine;
mod error;
mod far_back;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod guarantee;
mod inspect;
mod kernel;
mod memo;
mod release;
mod table;
mod take;
mod wake;

pub use diagnose::{LimitIds, PlaceIds, diagnose_limits, diagnose_place, is_on_overlay};
pub use dir::network_file_system;
pub use engine::FileEngine;
pub use kernel::clock::boot_time_ahead;

#[cfg(test)]
mod tests;

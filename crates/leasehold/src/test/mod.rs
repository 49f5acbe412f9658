//! Locks for the tests of programs: in memory, on a time that the test controls, and with faults when the test wants
//! them.
//!
//! A [`Kit`] is a store of locks that belongs to one test. [`Kit::process`] makes the [`Locks`](crate::Locks) of one
//! process; several processes compete for the names of the store, as processes on one server do. The page [Testing code
//! that locks](https://github.com/leasehold/leasehold/blob/main/docs/testing-code-that-locks.md) shows how.
//!
//! Where the time comes from depends on where [`Kit::process`] is called:
//!
//! - In a tokio runtime, the locks live on the time of this runtime and run in its tasks, so that its paused time does
//!   not pass while they have something to do.
//! - Without a runtime, time passes only in [`Kit::advance_blocking`], [`Kit::block_on`] and the blocking calls of the
//!   locks, on the thread that calls them. Use one thread.
//!
//! The callbacks of [`Guard::on_lost`](crate::Guard::on_lost) run in tasks of the kit, and not on a thread of their
//! own. So they, like observers, must not block: a blocking call of the locks in them is an error or panics.
//!
//! With the same seed and the same calls, a kit always has the same [history](Kit::history), if everything runs on one
//! thread on paused time.

mod clock;
mod entropy;
mod history;
mod kit;
mod runtime;
mod wire;

pub use kit::{Foreign, Kit};
pub use wire::Fault;

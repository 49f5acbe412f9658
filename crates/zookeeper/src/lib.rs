//! The ZooKeeper engine: locks on one ensemble.
//!
//! A lock is what Apache Curator's recipes make of it, and what kazoo's see: who made its node first in the directory of a name holds, the
//! others wait for those before them. So they exclude us and we them, in one line. Documentation for users:
//! `docs/engines/zookeeper.md`.

mod check;
mod claim;
mod claims;
mod client;
mod config;
mod conn;
mod engine;
mod enqueue;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod guarantee;
mod inspect;
mod keys;
mod maintenance;
mod notifications;
mod outbox;
mod permits;
mod position;
mod record;
mod release;
mod renew;
mod runtime;
mod session;
mod sessions;
mod stream;
mod view;
mod watches;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use check::HeldBy;
pub use config::{Config, DEFAULT_PREFIX, Layout};
pub use engine::ZookeeperEngine;
#[cfg(feature = "tls")]
pub use leasehold_tls::Tls;

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

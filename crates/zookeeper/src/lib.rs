//! The ZooKeeper engine: locks on one ensemble.
//!
//! A lock has the nodes of Apache Curator's recipes, which kazoo can be configured to recognise: the claim whose node
//! has the smallest number in the directory of a name holds, and the other claims wait for the nodes ahead of them. So
//! claims of these programs and ours exclude each other and share one queue. Documentation for users:
//! `docs/engines/zookeeper.md`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod check;
mod claim;
mod claim_all;
mod claims;
mod client;
mod config;
mod conn;
mod create_all;
mod decide_all;
mod diagnose;
mod engine;
mod enqueue;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod guarantee;
mod inspect;
mod keys;
mod latch;
mod maintenance;
mod memo_ends;
mod memo_followers;
mod memo_place;
mod memo_record;
mod memo_sweep;
mod memos;
mod notifications;
mod outbox;
mod permits;
mod plain;
mod position;
mod recheck;
mod record;
mod release;
mod renew;
mod runtime;
mod server_look;
mod session;
mod sessions;
mod stream;
mod view;
mod views;
mod watches;
mod wire;
mod words;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use check::HeldBy;
pub use config::{Config, DEFAULT_PREFIX, Layout};
pub use engine::ZookeeperEngine;
#[cfg(feature = "tls")]
pub use leasehold_tls::Tls;

/// Locks a mutex, even if another thread panicked while it held the lock.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics half-way through a change of the locked data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

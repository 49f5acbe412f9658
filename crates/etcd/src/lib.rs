//! The etcd engine: locks on one etcd cluster.
//!
//! A lock has the format of etcd's official client packages and of `etcdctl lock`: the oldest key in the directory of a
//! name holds, and every other key waits for the keys ahead of it. So these programs and ours exclude each other and
//! share one queue. Documentation for users: `docs/engines/etcd.md`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod claim;
mod claim_all;
mod claim_all_txn;
mod claims;
mod client;
mod config;
mod conn;
mod diagnose;
mod dial;
mod engine;
mod error;
mod fence;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod guarantee;
mod health;
mod inspect;
mod keys;
mod known_memos;
mod lock_key;
mod lock_key_end;
mod maintenance;
mod memo_followers;
mod memo_holder;
mod memo_lease_grants;
mod memo_leases;
mod memo_record;
mod memos;
mod min_hold;
mod min_hold_expiry;
mod notifications;
mod position;
mod push_handler;
mod recheck;
mod record;
mod release;
mod renew;
mod runtime;
mod session;
mod stream;
mod view;
mod views;
mod watches;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::{Config, DEFAULT_PREFIX, Layout};
pub use engine::EtcdEngine;
pub use fence::{Fence, Guarded, HeldBy};
#[cfg(feature = "tls")]
pub use leasehold_tls::Tls;

/// Locks a mutex, even if another thread panicked while it held the lock.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics half-way through a change of the locked data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

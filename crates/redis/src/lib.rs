//! The Redis engine: locks on Redis, Valkey or another compatible server.
//!
//! By default a lock is a string with an expiry, as most lock programs in any language set it (`SET key id NX PX`):
//! while leasehold holds such a lock, those programs cannot acquire it, and vice versa. Waiting, fairness, hand-over
//! and inspection use further keys beside the lock key. A release grants the freed name to the first waiter of the
//! queue inside the same script, and notifies that waiter's client of the grant (`lua/name.lua` documents the keys and
//! the rules). Documentation for users: `docs/engines/redis.md`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod claim_all;
mod config;
mod conn;
mod contention;
mod convert;
mod diagnose;
mod engine;
mod error;
mod evidence;
mod fast_path;
mod fence;
mod frames;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod guarantee;
mod holds;
mod identity;
mod inspect;
mod keys;
mod layout;
mod memo_followers;
mod memos;
mod open;
mod outbox;
mod previous;
mod push_listener;
mod reach;
mod redlock;
mod replicas;
mod reply;
mod runtime;
mod scripts;
mod server;
mod server_clock;
mod servers;
mod shared_task;
mod stream;
mod texts;
mod token_counter;
mod url;
mod views;
mod wake;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use config::{Config, DEFAULT_PREFIX, StaleDeadline};
pub use engine::RedisEngine;
pub use fence::{Fence, Guarded, Reply};
pub use layout::Layout;
#[cfg(feature = "tls")]
pub use leasehold_tls::{Tls, rustls};
pub use redlock::{RedlockConfig, RedlockEngine};
pub use server::Address;
pub use servers::{AddressMap, Sentinels, Servers};
pub use wake::Wake;

/// Locks a mutex, even if another thread panicked while it held the lock.
fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics half-way through a change of the locked data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

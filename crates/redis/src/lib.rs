//! The Redis engine: locks on one Redis, Valkey or other compatible server.
//!
//! The lock is the plain token lock of every other client (`SET key id NX PX`), so programs in any language exclude us and
//! we them; waiting, fairness, hand-over and inspection stand beside it. What a release frees is granted to the next in line
//! inside the same script and pushed to it (`lua/name.lua` tells the keys and the rules). Documentation for users:
//! `docs/engines/redis.md`.

mod config;
mod conn;
mod contention;
mod engine;
mod error;
mod evidence;
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
mod open;
mod outbox;
mod push_listener;
mod reach;
mod redlock;
mod replicas;
mod reply;
mod runtime;
mod scripts;
mod server;
mod servers;
mod shared_task;
mod short;
mod stream;
mod texts;
mod url;
mod wake;

pub use config::{Config, DEFAULT_PREFIX};
pub use engine::RedisEngine;
pub use fence::{Fence, Guarded, Reply};
pub use layout::Layout;
#[cfg(feature = "tls")]
pub use leasehold_tls::{Tls, rustls};
pub use redlock::{RedlockConfig, RedlockEngine};
pub use server::Address;
pub use servers::{AddressMap, Sentinels, Servers};
pub use wake::Wake;

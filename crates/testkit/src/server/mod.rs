//! Private servers for tests: real programs, on loopback, with directories of their own, ended by their own process id.

#[cfg(feature = "tls")]
mod certificates;
mod child;
mod clock;
mod gate;
mod proxy;
mod redis;

pub use clock::WallClock;
pub use proxy::Proxy;
pub use redis::{RedisServer, redis_command};

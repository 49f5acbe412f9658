//! The core of [leasehold](https://docs.rs/leasehold): vocabulary, keeper, pure machines, and the engines that need no client library.
//!
//! Users name the crate `leasehold`; engine authors and tests name this one.

mod claim;
mod engine;
mod error;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
mod inspect;
mod keeper;
mod mode;
mod name;
mod owner;
mod profile;
mod time;
mod token;

pub use claim::{
    Answer, Claim, ClaimId, Grant, Hint, Hold, How, Loss, News, Previous, Release, Released, Renewed,
};
pub use engine::{BoxFuture, Engine};
pub use error::{EngineError, Error, ErrorKind, Fault};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::FileEngine;
pub use inspect::{Broken, HolderView, Inspect, View, WaiterView};
pub use keeper::env::{Entropy, Env};
pub use mode::Mode;
pub use name::{MAX_NAME_BYTES, Name};
pub use owner::{MAX_OWNER_BYTES, Owner};
pub use profile::{Breaking, Guarantee, Level, Life, Profile};
pub use time::{Clock, Instant};
pub use token::{Lineage, Token};

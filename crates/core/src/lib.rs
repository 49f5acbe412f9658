//! The core of leasehold: shared types, the keeper, pure state machines, and the engines that need no client library.
//!
//! Users depend on the crate `leasehold`; engine crates and tests depend on this one.

mod client;
mod contract;
mod driver;
mod engines;
mod guard;
mod locks;
mod look;
mod pure;
mod request;

pub use client::bounded::{Bounded, Frames, LONGEST_REPLY, Room, TooLong};
pub use client::contact::{CONNECT_TIMEOUT, Contact, LONGEST_DIAL, dial_limit};
pub use client::endpoint::Endpoint;
pub use client::link::{Dial, Link};
pub use client::mailbox::{MAX_NOTIFICATIONS, Mailbox};
pub use client::maintenance::{LONGEST_SLEEP, Maintain, end_claims, maintain};
pub use client::password::{Credentials, Login, Password};
pub use client::runtime;
pub use client::servers_url::{ServersUrl, set_password};
pub use contract::claim::{
    Answer, Claim, ClaimId, Grant, Hint, Hold, How, Loss, Notification, Previous, Release, Released, Renewed,
};
pub use contract::engine::{BoxFuture, Engine};
pub use contract::error::{EngineError, Error, ErrorKind, Fault};
pub use contract::inspect::{Broken, HolderView, Inspect, View, WaiterView};
pub use contract::mode::Mode;
pub use contract::name::{MAX_NAME_BYTES, Name};
pub use contract::observe::{Event, Observe};
pub use contract::owner::{MAX_OWNER_BYTES, Owner};
pub use contract::profile::{Breaking, Finding, Guarantee, Level, Life, Modes, Profile, REQUEST_TIMEOUT};
pub use contract::time::{Clock, Instant};
pub use contract::time_change::{TimeChange, TimeLeft};
pub use contract::token::{Lineage, Token};
#[doc(hidden)]
pub use driver::keeper::is_on_calling_thread;
pub use driver::keeper::{Entropy, Env, Keeper, Runtime};
pub use driver::outage::WhenUnreachable;
pub use driver::tasks::{Panicked, catch_panic, run_with_restarts};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use engines::file;
#[cfg(all(feature = "file", target_os = "linux"))]
pub use engines::file::{FileEngine, boot_time_ahead, network_file_system};
#[cfg(feature = "memory")]
pub use engines::memory;
pub use guard::Guard;
pub use locks::{Builder, Locks, Rw};
pub use pure::claim_table::{
    ClaimEntry, ClaimState, ClaimTable, UNWATCHED_POLL, WATCHED_AFTER, WATCHED_CLAIM_LIFE, WATCHED_POLL,
};
pub use pure::in_flight::{InFlight, InFlightRequest};
pub use pure::lease::{Lease, LeaseAction, Renewal, deadline};
pub use pure::lock_state;
pub use pure::pace::Pace;
pub use pure::rotation::Rotation;
pub use pure::server_clock::ServerClock;
pub use pure::stop::Stop;
pub use pure::token_block::{HAND_OVER_TOKENS, TokenBlocks};
pub use pure::wait::{Wait, WaitAction};
pub use request::{Acquire, Blocking, DEFAULT_TTL, Request};

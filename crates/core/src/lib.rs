//! The core of leasehold: vocabulary, keeper, pure machines, and the engines that need no client library.
//!
//! Users name the crate `leasehold`; engine authors and tests name this one.

mod bounded;
mod claim;
mod claim_table;
mod contact;
mod due;
mod endpoint;
mod engine;
mod error;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
mod forward;
mod guard;
mod in_flight;
mod inspect;
mod keeper;
mod lease;
mod link;
mod local;
pub mod lock_state;
mod locks;
mod look;
mod mailbox;
mod maintenance;
#[cfg(feature = "memory")]
pub mod memory;
mod mode;
mod name;
mod observe;
mod owner;
mod password;
mod process;
mod profile;
mod request;
mod rotation;
pub mod runtime;
mod server_clock;
mod servers_url;
mod shared;
mod stop;
mod tasks;
mod time;
mod token;
mod validity;
mod wait;

pub use bounded::{Bounded, Frames, LONGEST_REPLY, Room, TooLong};
pub use claim::{
    Answer, Claim, ClaimId, Grant, Hint, Hold, How, Loss, Notification, Previous, Release, Released, Renewed,
};
pub use claim_table::{ClaimEntry, ClaimState, ClaimTable, WATCHED_AFTER};
pub use contact::{CONNECT_TIMEOUT, Contact, LONGEST_DIAL, dial_limit};
pub use endpoint::Endpoint;
pub use engine::{BoxFuture, Engine};
pub use error::{EngineError, Error, ErrorKind, Fault};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use file::{FileEngine, boot_time_ahead, network_file_system};
pub use guard::Guard;
pub use in_flight::{InFlight, InFlightRequest};
pub use inspect::{Broken, HolderView, Inspect, View, WaiterView};
#[doc(hidden)]
pub use keeper::is_begun_here;
pub use keeper::{Entropy, Env, Keeper, Runtime};
pub use lease::{Lease, LeaseAction, Renewal, deadline};
pub use link::{Dial, Link};
pub use locks::{Builder, Locks, Rw};
pub use mailbox::{MAX_NOTIFICATIONS, Mailbox};
pub use maintenance::{LONGEST_SLEEP, Maintain, end_claims, maintain};
pub use mode::Mode;
pub use name::{MAX_NAME_BYTES, Name};
pub use observe::{Event, Observe};
pub use owner::{MAX_OWNER_BYTES, Owner};
pub use password::Password;
pub use profile::{Breaking, Finding, Guarantee, Level, Life, Modes, Profile, REQUEST_TIMEOUT};
pub use request::{Acquire, Blocking, DEFAULT_TTL, Request};
pub use rotation::Rotation;
pub use server_clock::ServerClock;
pub use servers_url::{ServersUrl, set_password};
pub use stop::Stop;
pub use tasks::{Panicked, caught, lasting};
pub use time::{Clock, Instant};
pub use token::{Lineage, Token};
pub use wait::{Next, Wait};

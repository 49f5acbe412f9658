//! The core of leasehold: shared types, the keeper, pure state machines, and the engines that need no client library.
//!
//! Users depend on the crate `leasehold`; engine crates and tests depend on this one.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod acquire_all;
mod all;
mod blocking;
mod client;
mod contract;
mod driver;
mod election;
mod engines;
mod guard;
mod guards;
mod handles;
mod latch;
mod locks;
mod look;
mod memo;
mod memo_follower;
mod notices;
mod once;
mod pure;
mod request;
mod run;
mod schedule;
mod striped;
mod turn;

pub use acquire::Acquire;
pub use acquire_all::{AcquireAll, BlockingAll};
pub use all::{All, MAX_NAMES_AT_ONCE};
pub use blocking::Blocking;
pub use client::bounded::{Bounded, Frames, LONGEST_REPLY, Room, TooLong};
pub use client::contact::{CONNECT_TIMEOUT, Contact, LONGEST_DIAL, dial_limit};
pub use client::contended_names::ContendedNames;
pub use client::digest_text::{NO_DIGEST, digest_text, read_digest};
pub use client::endpoint::Endpoint;
pub use client::link::{Dial, Link};
pub use client::mailbox::{MAX_NOTIFICATIONS, Mailbox};
pub use client::maintenance::{LONGEST_SLEEP, Maintain, end_claims, maintain};
pub use client::password::{Credentials, Login, Password};
pub use client::runtime;
pub use client::servers_url::{ServersUrl, set_password};
pub use contract::actor::Actor;
pub use contract::claim::{
    Answer, Claim, ClaimId, Grant, Hint, Hold, How, Loss, Notification, Previous, Release, Released, Renewed,
};
pub use contract::claim_all::AllAnswer;
pub use contract::convert::{Conversions, Upgraded};
pub use contract::diagnose_certificate::judge_certificate;
pub use contract::diagnostic::{Diagnostic, Severity};
pub use contract::engine::{BoxFuture, Engine, cannot_claim_all};
pub use contract::error::{EngineError, Error, ErrorKind, Fault};
pub use contract::handle::Handle;
pub use contract::holder_view::{HolderProcess, HolderView};
pub use contract::inspect::{Broken, Inspect, View, WaiterView};
pub use contract::memo::{
    Followed, HoldAfter, MAX_MEMO_BYTES, MAX_MEMO_KEEP, MIN_MEMO_KEEP, Memo, MemoKind, MemoVersion,
    MemoWrite, Memos, NewMemo, Written, foreign_memo_error, kind_error,
};
#[doc(hidden)]
pub use contract::mode::KnownMode;
pub use contract::mode::Mode;
pub use contract::name::{MAX_NAME_BYTES, Name};
pub use contract::notice::{NoticeSender, Notices, Watched, notices};
pub use contract::observe::{Event, GuardEnd, Observe, Verb};
pub use contract::owner::{MAX_OWNER_BYTES, Owner};
#[doc(hidden)]
pub use contract::profile::EXCLUSIVE_ONLY;
pub use contract::profile::{Breaking, Finding, Guarantee, Level, Life, Modes, Profile, REQUEST_TIMEOUT};
pub use contract::time::{Clock, Instant};
pub use contract::time_change::{TimeChange, TimeLeft};
pub use contract::token::{Lineage, Token};
#[doc(hidden)]
pub use driver::keeper::{BlockingCall, is_on_calling_thread};
pub use driver::keeper::{Entropy, Env, Keeper, Runtime};
pub use driver::outage::WhenUnreachable;
pub use driver::tasks::{Panicked, catch_panic, run_with_restarts};
pub use election::Election;
pub use election::candidate::{Candidate, Role};
pub use election::leading::Leading;
pub use election::watch::{Leader, LeaderWatch, Leadership};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use engines::file;
#[cfg(all(feature = "file", target_os = "linux"))]
pub use engines::file::{
    FileEngine, LimitIds, PlaceIds, boot_time_ahead, diagnose_limits, diagnose_place, is_on_overlay,
    network_file_system,
};
#[cfg(feature = "memory")]
pub use engines::memory;
pub use guard::{Guard, convert::NotConverted};
pub use guards::Guards;
pub use latch::{Arrivals, Latch};
pub use locks::{Builder, Locks, Rw};
pub use memo_follower::MemoFollower;
pub use once::Once;
pub use once::outcome::{OnceError, Ran};
#[doc(hidden)]
pub use once::turn::OnceTurn;
pub use pure::claim_table::{
    ClaimEntry, ClaimState, ClaimTable, UNWATCHED_POLL, WATCHED_AFTER, WATCHED_CLAIM_LIFE, WATCHED_POLL,
};
pub use pure::in_flight::{InFlight, InFlightRequest};
pub use pure::lease::{Lease, LeaseAction, Renewal, deadline};
pub use pure::lock_state;
pub use pure::memo_rule::{MemoHead, MemoVerdict, judge_memo};
pub use pure::pace::Pace;
pub use pure::rotation::Rotation;
pub use pure::server_clock::ServerClock;
pub use pure::stop::Stop;
pub use pure::token_block::{HAND_OVER_TOKENS, TokenBlocks};
pub use pure::wait::{Wait, WaitAction};
pub use request::{DEFAULT_TTL, Request};
pub use run::RunError;
pub use schedule::due::Due;
pub use schedule::outcome::{TickError, Ticked};
pub use schedule::plan::Missed;
pub use schedule::request::TickRequest;
pub use schedule::timetable::{Every, Timetable};
pub use schedule::turn::Tick;
pub use schedule::{LastTick, Schedule};
pub use striped::{Striped, stripe_name};

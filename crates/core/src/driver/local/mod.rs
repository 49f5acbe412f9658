//! The local state of each name: the holds of this process, its queue of waiting requests, and its one claim in flight
//! on the engine for the head of that queue.
//!
//! This state is shared memory, not behind messages to the keeper: so the thread that releases a hold can itself hand
//! the hold over to the next request of the process.

mod convert;
mod deliver;
mod enter;
mod grant;
mod handles;
mod leave;
mod memo_release;
mod newest_tokens;
mod queue;
mod reenter;
mod release;
mod set;
mod state;
mod table;
mod wait_limit;

pub(crate) use convert::{BegunConversion, NewClaim};
pub(crate) use deliver::Arrival;
pub(crate) use enter::{Entered, RequestSpec, Tries};
pub(crate) use grant::SentClaim;
pub(crate) use handles::already_here;
pub(crate) use leave::UNRESPONSIVE_AFTER;
pub(crate) use newest_tokens::NewestTokens;
pub(crate) use release::{GuardRelease, ReleaseOutcome, release_result, unanswered_release};
pub(crate) use set::Contention;
pub(crate) use state::{Control, Ending, Terms, Ticket};
#[cfg(feature = "memory")]
pub(crate) use table::KeyedHasher;
pub(crate) use table::NameTable;
pub(crate) use wait_limit::WaitLimit;

/// For how long a hold is handed over inside the process before other processes are served (R8, R17), as long as its
/// tokens last.
pub(crate) const LONGEST_HANDOVERS: std::time::Duration = std::time::Duration::from_millis(50);

//! The lock state: everything an engine knows about *one* name, as a pure state machine: its holders, its queue, and
//! how the last hold ended. Time, tokens and tombstones come in with a [`StepContext`]; decisions come out as data.
//!
//! The memory engine and the SQL engines run it; tests of the other engines use it as their oracle. It promises:
//!
//! * One queue for all modes, first come, first served: a newcomer never passes a live claim in the queue, so a waiting
//!   writer stops later readers, and a small permit claim does not overtake a large one.
//! * Only [`LockState::settle`] grants to claims in the queue, and every verb runs it. Consecutive readers are granted
//!   together.
//! * A grant to a waiting claim is *pushed*: it lasts only the claim's `claim_time`, unless the claim renews it or
//!   asks. If it lapses, its claim leaves the queue (it is *silent*), and enters it again at the end with its next
//!   request.
//! * Queue entries are leases of [`entry_life`], extended by every request of their claim.
//! * A released, broken or lapsed claim is dead: its id is kept in [`Tombstones`] for as long as an earlier request of
//!   it may still arrive.

mod claim;
mod convert;
mod end;
mod entry;
mod look;
mod save;
mod settle;
mod tombstones;
mod wait_queue;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod judge;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

pub use self::{
    end::BrokenHold,
    entry::{MAX_ENTRY_LIFE, MIN_ENTRY_LIFE, entry_life},
    look::{MIN_HOLD_OWNER, WATCHERS},
    save::{Entry, EntryKind, Saved},
    tombstones::{MAX_TOMBSTONES, Tombstones},
};
use self::{entry::Holder, wait_queue::WaitQueue};
use crate::{ClaimId, Grant, Instant, Mode, Previous, Token};

/// The most claims in the queue of one name: far more than one claim for each of thousands of processes, and few enough
/// that a search through them takes microseconds.
pub const MAX_WAITERS: usize = 16_384;

/// The most holds of one name at one time, few enough that a search through them takes microseconds. Further shared or
/// permit claims wait in the queue.
pub const MAX_HOLDERS: usize = 16_384;

/// The most tokens one grant carries: hand-over inside a process stops far below this bound, and a 64-bit counter lasts
/// for years even if every grant carries this many.
pub const MAX_TOKENS: u32 = 65_536;

/// How long a free name remembers that its last hold did not end cleanly. Long enough for the next holder to repair the
/// data, short enough that abandoned names leave nothing behind.
pub const ENDED_LIFE: Duration = Duration::from_secs(3600);

/// The state of one name. `C` is whatever the engine needs to reach the client of a claim.
///
/// An empty state allocates nothing; a name with one hold costs one small allocation.
pub struct LockState<C> {
    holders: Vec<Holder<C>>,
    wait_queue: Option<Box<WaitQueue<C>>>,
    /// No hold and no queue entry expires before this instant: until then there is nothing to prune.
    earliest_expiry: Instant,
    /// The newest token minted for this name.
    newest_token: u64,
    last_end: LastEnd,
}

/// The inputs and outputs of one step of a lock state.
pub struct StepContext<'a, C> {
    /// The time. The times of successive steps may be slightly out of order; the order of the steps decides.
    pub now: Instant,
    /// How long after the end of a claim a request of it may still arrive.
    pub request_life: Duration,
    /// The claims that can never be granted again.
    pub tombstones: &'a mut Tombstones,
    /// Mints the given number of tokens in a row and returns the first. All tokens of a call are larger than those of
    /// every earlier call.
    pub mint: &'a mut dyn FnMut(u32) -> Token,
    /// The grants made by this step to claims in the queue, in order: to be sent to their clients.
    pub pushed: Vec<Pushed<C>>,
}

/// A grant to a waiting claim, to be sent to its client. It lasts the claim time, which is the `ttl` of the grant.
#[derive(Clone, Debug)]
pub struct Pushed<C> {
    /// The client to notify.
    pub client: C,
    /// The claim.
    pub id: ClaimId,
    /// The grant.
    pub grant: Grant,
}

/// Why a lock state refuses a claim; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The name is in use as another kind of lock, or with another limit.
    #[error("it is in use now as {} and cannot be claimed as {}: one name is one kind of lock with one limit", kind_of_lock(*.found), kind_of_lock(*.asked))]
    Clash {
        /// The mode that was asked for.
        asked: Mode,
        /// The mode of a holder or waiter.
        found: Mode,
    },
    /// The queue has [`MAX_WAITERS`] claims already.
    #[error("the queue is full: {MAX_WAITERS} claims wait already")]
    QueueFull,
    /// A count of zero, or larger than the limit, can never be granted.
    #[error("{0} can never be granted: the count must be from 1 to the limit")]
    Impossible(Mode),
}

/// How the last holds of the name ended, as reported to the next grant.
#[derive(Clone, Copy, Debug)]
pub struct LastEnd {
    /// The `previous` of the next grant.
    pub previous: Previous,
    /// The newest token minted when `previous` was set: a hold with a token up to this one was concurrent with the hold
    /// that ended.
    pub newest_token: u64,
    /// Until when `previous` is remembered if no claim is granted.
    pub remembered_until: Instant,
}

impl<C> LockState<C> {
    /// A name without holders and waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            holders: Vec::new(),
            wait_queue: None,
            earliest_expiry: Instant::NEVER,
            newest_token: 0,
            last_end: LastEnd {
                previous: Previous::Clean,
                newest_token: 0,
                remembered_until: Instant::from_nanos(0),
            },
        }
    }
}

impl<C> Default for LockState<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, C> StepContext<'a, C> {
    /// A step with no grants to send yet.
    pub fn new(
        now: Instant,
        request_life: Duration,
        tombstones: &'a mut Tombstones,
        mint: &'a mut dyn FnMut(u32) -> Token,
    ) -> Self {
        Self { now, request_life, tombstones, mint, pushed: Vec::new() }
    }

    /// Leaves a tombstone for `id`: from now on no request of this claim can create anything.
    fn add_tombstone(&mut self, id: ClaimId) {
        self.tombstones.add(id, self.now, self.now.after(self.request_life));
    }
}

impl<C> fmt::Debug for LockState<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockState")
            .field("holders", &self.holders.len())
            .field("waiters", &self.waiters())
            .finish_non_exhaustive()
    }
}

/// The kind of lock that a mode belongs to, for messages.
fn kind_of_lock(mode: Mode) -> String {
    match mode.limit() {
        Some(limit) => format!("a semaphore of {limit}"),
        None => "a mutex or read-write lock".to_owned(),
    }
}

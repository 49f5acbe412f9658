//! The properties of an engine, as configured, which core and users base decisions on.

use std::{fmt, ops::RangeInclusive, time::Duration};

use crate::{Contact, pure::lock_state::MIN_ENTRY_LIFE};

/// How long a request may take before its outcome is unknown, unless an engine sets its own time.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an engine without a reason of its own has no memos.
const NO_MEMOS: &str = "this engine stores nothing beside its locks";

/// Why an engine with exclusive holds alone converts none.
#[doc(hidden)]
pub const EXCLUSIVE_ONLY: &str = "names can be held exclusively alone";

/// Why an engine without a reason of its own converts no holds.
const NO_CONVERSION: &str = "it has no step that changes the mode of a hold";

/// Why an engine without a reason of its own has no handles.
const NO_HANDLES: &str =
    "a hold ends with the process that acquired it, or with a session or lease of that process";

/// Properties of an engine. An engine makes its profile with [`Profile::new`] and then assigns fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The name of the engine: `memory`, `file`, `redis`, ...
    pub engine: &'static str,
    /// What the end of a hold depends on.
    pub life: Life,
    /// Whether the engine pushes notifications. Without push, core polls for waiting claims at the intervals of `poll`.
    pub push: bool,
    /// The range of the interval at which a waiting claim asks again. Without push, the claim at the head of the queue
    /// asks at the smallest interval, and claims farther back ask less often. With push, notifications wake a claim,
    /// and the claim asks at the largest interval only in case a notification is lost.
    #[doc(hidden)]
    pub poll: RangeInclusive<Duration>,
    /// Verbs never wait for anything outside the process: core may run them on the caller's thread.
    #[doc(hidden)]
    pub inline: bool,
    /// The first poll of a verb's future never blocks. So core may make this poll on the caller's thread, which sends
    /// the request; the keeper completes the request.
    #[doc(hidden)]
    pub direct: bool,
    /// How many tokens a grant carries: its own, and one for each time that the hold may be handed over inside the
    /// process before other processes are served. (Core also stops these hand-overs after 50 ms.) 1 where the engine
    /// mints no blocks of tokens.
    #[doc(hidden)]
    pub tokens: u32,
    /// The most names that [`claim_all`](crate::Engine::claim_all) takes in one step, all or none; 1 where the engine
    /// cannot take several. Core takes the names of a larger set one after another.
    pub claims_at_once: usize,
    /// The modes in which names can be claimed.
    pub modes: Modes,
    /// Claims are granted in the order in which they entered the queue.
    pub fifo: bool,
    /// The engine stores names, owners, modes and tokens of claims, so that another client can list and show them, and
    /// refuses a claim whose mode conflicts with theirs. False where the server has nothing but locks.
    pub stores_claims: bool,
    /// A release can block the name for a minimum hold time. Where it cannot, the process holds the name until that
    /// time has passed.
    pub supports_min_hold: bool,
    /// A renewal can ask for a longer time than the claim did, and no later renewal shortens the hold.
    pub extends: bool,
    /// What `break` can do.
    pub breaking: Breaking,
    /// The range of ttls that a claim may ask for.
    pub ttl: RangeInclusive<Duration>,
    /// How long a queue entry lasts at least after the last request of its claim.
    #[doc(hidden)]
    pub entry_life: Duration,
    /// How long one request may take; after that its outcome is unknown.
    #[doc(hidden)]
    pub request_timeout: Duration,
    /// How long after it was sent a request may still arrive at the server; cleanup continues for at least this time.
    #[doc(hidden)]
    pub request_life: Duration,
    /// Why the engine stores no [memos](crate::Memos); `None` if it stores them.
    pub no_memos: Option<&'static str>,
    /// Why the engine cannot [convert](crate::Conversions) holds between exclusive and shared; `None` if it can.
    pub no_conversion: Option<&'static str>,
    /// Why no hold can be left without a process, and be taken up by another process through its
    /// [`Handle`](crate::Handle); `None` if that is possible: then a renewal or release needs only what the handle
    /// contains.
    pub no_handles: Option<&'static str>,
    /// Whether a connection was ever made; `None` for an engine that has no connection or does not report it.
    #[doc(hidden)]
    pub contact: Option<Contact>,
}

impl Profile {
    /// The profile of a leased, polled, remote engine without optional features. The caller must set the fields in
    /// which the engine differs.
    #[doc(hidden)]
    #[must_use]
    pub fn new(engine: &'static str) -> Self {
        Self {
            engine,
            life: Life::Lease,
            push: false,
            poll: Duration::from_millis(50)..=Duration::from_secs(1),
            // Verbs wait for a server, and only the keeper's thread sends requests.
            inline: false,
            direct: false,
            // No blocks of tokens: a grant carries one token.
            tokens: 1,
            // One name at a time.
            claims_at_once: 1,
            modes: Modes::All,
            fifo: false,
            stores_claims: true,
            supports_min_hold: false,
            extends: true,
            breaking: Breaking::No,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 3600),
            // A queue entry lasts at least this long after the last request of its claim.
            entry_life: MIN_ENTRY_LIFE,
            request_timeout: REQUEST_TIMEOUT,
            // A request arrives at most this long after it was sent.
            request_life: Duration::from_secs(10),
            no_memos: Some(NO_MEMOS),
            no_conversion: Some(NO_CONVERSION),
            no_handles: Some(NO_HANDLES),
            contact: None,
        }
    }
}

/// What the end of a hold on the engine depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// A lease: the hold ends after a time, unless renewed.
    Lease,
    /// A session, which is a lease shared by many holds.
    Session,
    /// The process: the hold lasts until it is released or its process ends, and never lapses.
    Process,
    /// Nothing: the hold is stored until it is released or broken. It never lapses, and the end of its process does not
    /// end it.
    Stored,
}

impl Life {
    /// Whether a time ends a hold that is not renewed.
    ///
    /// ```
    /// use leasehold::Life;
    /// assert!(Life::Lease.lapses() && !Life::Process.lapses());
    /// ```
    #[must_use]
    pub const fn lapses(self) -> bool {
        matches!(self, Self::Lease | Self::Session)
    }
}

/// The modes in which an engine can grant names. A claim in another mode is refused as misconfigured, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Modes {
    /// Every [`Mode`](crate::Mode).
    All,
    /// Exclusive and shared, without permits.
    Locks,
    /// Exclusive only.
    Exclusive,
}

/// What breaking a lock does on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breaking {
    /// Not supported.
    No,
    /// Ask the holder to stop; a holder that does not react still holds the lock.
    Ask,
    /// End the hold on the server; the next grant waits until the holder releases or its remaining lease has run out.
    Lease,
    /// Only by force: the hold is deleted on the server, and the next grant does not wait for its holder.
    Force,
}

/// What the engine promises, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantee {
    /// The level.
    pub level: Level,
    /// Why the level is not higher: each finding alone lowers it to [`Level::BestEffort`].
    pub findings: Vec<Finding>,
    /// Further facts to know, one sentence each.
    pub notes: Vec<String>,
}

/// A setting or property of the engine that lowers its guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its name in the engine's documentation.
    pub what: String,
    /// Its value.
    pub found: String,
    /// The value that would not lower the level.
    pub wanted: String,
    /// What can happen with the value found.
    pub risk: String,
}

impl Guarantee {
    /// A guarantee without findings, with its notes.
    #[doc(hidden)]
    #[must_use]
    pub fn new(level: Level, notes: &[&str]) -> Self {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Self { level, findings: Vec::new(), notes }
    }

    /// Adds a finding, which lowers the level to best effort.
    #[doc(hidden)]
    pub fn lower(&mut self, what: &str, found: &str, wanted: &str, risk: &str) {
        self.level = Level::BestEffort;
        let [what, found, wanted, risk] = [what, found, wanted, risk].map(str::to_owned);
        self.findings.push(Finding { what, found, wanted, risk });
    }

    /// Adds a note.
    #[doc(hidden)]
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, found, wanted, risk } = self;
        write!(f, "{what} is {found}, wanted {wanted}: {risk}")
    }
}

/// The whole guarantee in one line.
impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        self.findings.iter().try_for_each(|finding| write!(f, "; {finding}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// The level of a guarantee. With a fence at the protected resource, stale writes are rejected on every level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Exclusion may break on a documented event (fail-over, lost disk).
    BestEffort,
    /// No two holders both pass `guard.check()` at one instant, given clock rates that differ by at most 1 %.
    LeaseBounded,
    /// A holder holds the lock until it releases it or its process ends; nothing lapses.
    Exact,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "best effort",
            Self::LeaseBounded => "lease-bounded",
            Self::Exact => "exact",
        })
    }
}

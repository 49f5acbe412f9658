//! The facts about an engine, as configured, that core and users decide by.

use std::{fmt, ops::RangeInclusive, time::Duration};

use crate::{Contact, lock_state::MIN_ENTRY_LIFE};

/// How long a request may take before its outcome is unknown, unless an engine says otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Facts about an engine. Engines fill it with [`Profile::new`] and field assignments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The engine's word: `memory`, `file`, `redis`, ...
    pub engine: &'static str,
    /// How a hold lives.
    pub life: Life,
    /// Whether news are pushed. Without, waiting claims are asked at the pace of `poll`.
    pub push: bool,
    /// How often a waiting claim is asked: from the smallest pace (the head of the line) to the largest (the safety net).
    pub poll: RangeInclusive<Duration>,
    /// Verbs never wait for anything outside the process: core may run them on the caller's thread.
    pub inline: bool,
    /// Requests may be begun on the caller's thread, which sends them, and be seen through by the keeper: a first poll never blocks.
    pub direct: bool,
    /// How many tokens a grant brings: its own, and one for each time that it may be handed on inside the process before
    /// other processes get their turn (for 50 ms at most). 1 where the engine mints no blocks.
    pub tokens: u32,
    /// In which modes names can be claimed.
    pub modes: Modes,
    /// Claims are granted in the order in which they took their place in line.
    pub fifo: bool,
    /// A release can keep the name taken for a time. Where it cannot, the process goes on holding until then.
    pub can_keep: bool,
    /// What `break` can do.
    pub breaking: Breaking,
    /// The ttl a claim may ask for.
    pub ttl: RangeInclusive<Duration>,
    /// How long a place in line lasts at least after its claim last spoke.
    pub place: Duration,
    /// How long one request may take before its outcome is unknown.
    pub request_timeout: Duration,
    /// How long after it was sent a lost request may still arrive; clean-up goes on at least so long.
    pub request_life: Duration,
    /// Whether a connection was ever made; `None` for an engine without any, or that does not tell.
    pub contact: Option<Contact>,
}

impl Profile {
    /// The profile of a leased, polled, remote engine without extras; set what differs.
    #[must_use]
    pub fn new(engine: &'static str) -> Self {
        Self {
            engine,
            life: Life::Lease,
            push: false,
            poll: Duration::from_millis(50)..=Duration::from_secs(1),
            inline: false,
            direct: false,
            tokens: 1,
            modes: Modes::All,
            fifo: false,
            can_keep: false,
            breaking: Breaking::No,
            ttl: Duration::from_millis(100)..=Duration::from_secs(24 * 3600),
            place: MIN_ENTRY_LIFE,
            request_timeout: REQUEST_TIMEOUT,
            request_life: Duration::from_secs(10),
            contact: None,
        }
    }
}

/// How a hold lives on the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// For a time, unless renewed.
    Lease,
    /// As long as a session, which is a lease shared by many holds.
    Session,
    /// Until it is released or its process is gone: it never lapses.
    Process,
}

/// In which modes an engine can grant names. A claim in another is refused as misconfigured, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Modes {
    /// In every [`Mode`](crate::Mode).
    All,
    /// Exclusively alone.
    Exclusive,
}

/// What breaking a lock can do on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breaking {
    /// Nothing.
    No,
    /// Ask the holder to stop; a holder that does not listen keeps the lock.
    Ask,
    /// End the hold on the server; the next grant waits for the holder or its remaining lease.
    Lease,
}

/// What is promised, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantee {
    /// The level.
    pub level: Level,
    /// Why it is not higher: each alone lowers it to [`Level::BestEffort`].
    pub findings: Vec<Finding>,
    /// What else to know, one sentence each.
    pub notes: Vec<String>,
}

/// A setting of the engine, or a fact about it, that lowers what it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its name, as the engine's documentation has it.
    pub what: String,
    /// Its value.
    pub found: String,
    /// The value that would not lower the level.
    pub wanted: String,
    /// What can happen as it is.
    pub risk: String,
}

impl Guarantee {
    /// A level that nothing lowers yet, with its notes.
    #[must_use]
    pub fn new(level: Level, notes: &[&str]) -> Self {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Self { level, findings: Vec::new(), notes }
    }

    /// Best effort from now on, for this reason.
    pub fn lower(&mut self, what: &str, found: &str, wanted: &str, risk: &str) {
        self.level = Level::BestEffort;
        let [what, found, wanted, risk] = [what, found, wanted, risk].map(str::to_owned);
        self.findings.push(Finding { what, found, wanted, risk });
    }

    /// One thing more to know.
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

/// All of it in one line.
impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        self.findings.iter().try_for_each(|finding| write!(f, "; {finding}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// The level of a guarantee. With a fence at the protected resource, stale writes are refused on every level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Exclusion may break on a documented event (fail-over, lost disk).
    BestEffort,
    /// No two holders both pass `guard.check()` at one instant, given clock rates that differ by at most 1 %.
    LeaseBounded,
    /// A holder keeps the lock until it lets go or is gone; nothing lapses.
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

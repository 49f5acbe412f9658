//! One attempt to hold a name, and what an engine answers about it.

use std::{fmt, sync::Arc, time::Duration};

use crate::{EngineError, Instant, Mode, Name, Token};

/// Names one claim: 128 random bits from the operating system, made before anything is sent, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub [u8; 16]);

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl ClaimId {
    /// Reads what is displayed of one: 32 hexadecimal digits.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits)?;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One attempt to hold a name.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its own identity.
    pub id: ClaimId,
    /// What is to be held.
    pub name: Name,
    /// How it is to be held.
    pub mode: Mode,
    /// How long the lease shall last; an engine may grant another time and says so.
    pub ttl: Duration,
    /// How long a grant that is *pushed* to this claim while it waits lasts until it is renewed or asked for; at most `ttl`.
    pub claim_time: Duration,
    /// Whether the claim may take a place in line when the name is taken.
    pub may_queue: bool,
    /// How many tokens the grant shall carry, for hand-over inside the process; engines that mint no blocks give 1.
    pub tokens: u32,
    /// Shown to others.
    pub owner: Arc<str>,
    /// The claiming process ends its work under the lock when it gets SIGTERM, as `leasehold run` does: an engine that
    /// can only ask a holder to stop ([`Breaking::Ask`](crate::Breaking::Ask)) may ask this one.
    pub stops_on_term: bool,
}

/// Whether a call of `claim` may create anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Take the name, or a place in line.
    Create,
    /// Only say where the claim stands. Asking a live grant extends it to the full ttl and returns the same token.
    Ask,
}

/// What an engine answers to a claim.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The claim holds the name.
    Held(Grant),
    /// The claim has a place in line.
    Waiting(Hint),
    /// The name is taken and nothing of the claim remains on the engine.
    Taken(Hint),
    /// The engine knows nothing of this claim (any more), or it was released before: it can never be granted.
    Gone,
}

/// A hold as the engine granted it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The first token of the grant.
    pub token: Token,
    /// How many tokens in a row the grant carries, `token` included; at least 1.
    pub tokens: u32,
    /// The time granted, counted by the engine from when it granted; `None` where holds never lapse.
    pub ttl: Option<Duration>,
    /// How the hold before this one ended.
    pub previous: Previous,
}

/// How the hold before a grant ended. After anything but `Clean`, the protected data may be half-written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Previous {
    /// It was released, or there was none.
    Clean,
    /// Its code panicked: the guard was dropped while unwinding.
    Abandoned,
    /// Its lease ran out, or its process died.
    Lapsed,
    /// An operator broke it.
    Broken,
    /// The engine cannot tell.
    Unknown,
}

impl Previous {
    /// Of two ends, the one that the next holder has more reason to know.
    pub(crate) fn worse(self, other: Self) -> Self {
        let weight = |how| match how {
            Self::Clean => 0,
            Self::Unknown => 1,
            Self::Abandoned => 2,
            Self::Lapsed => 3,
            Self::Broken => 4,
        };
        if weight(other) > weight(self) { other } else { self }
    }
}

/// What an engine knows about the wait of a claim that does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    /// After this time asking again may pay even without news (a lease runs out, a kept name becomes free).
    pub ask_in: Option<Duration>,
    /// How many claims stand in line before this one.
    pub ahead: Option<u32>,
    /// What stands in the way, if nobody knows that it will ever end by itself: told to whoever waits in vain, as a
    /// misconfiguration.
    pub obstacle: Option<&'static str>,
}

/// A granted claim, as `renew` takes it. Engines compare the id *and* the token with what they store.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The claim.
    pub id: ClaimId,
    /// What is held.
    pub name: Name,
    /// How it is held.
    pub mode: Mode,
    /// The first token of the grant.
    pub token: Token,
    /// The time to extend to.
    pub ttl: Duration,
}

/// What an engine answers to the renewal of one hold.
#[derive(Debug)]
pub enum Renewed {
    /// It is held for this time from when the engine answered; `None` where holds never lapse.
    Kept {
        /// The time granted.
        ttl: Option<Duration>,
    },
    /// It is no longer held.
    Lost(Loss),
    /// The engine did not say. Nothing changes.
    Unknown(EngineError),
}

/// Why a hold ended before its guard did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal was acknowledged before the deadline.
    Lapsed,
    /// The engine says that the hold is gone or belongs to another.
    Gone,
    /// An operator broke it.
    Broken,
    /// The file under the lock was replaced or unlinked.
    Replaced,
    /// `max_hold` ended.
    MaxHold,
    /// The token of the grant was not larger than one seen before: the engine lost or restored its state.
    TokenWentBack,
    /// The `Locks` was closed, or its keeper is gone.
    Closed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lapsed => "its lease ran out before a renewal was acknowledged",
            Self::Gone => "the engine says that it is gone",
            Self::Broken => "an operator broke it",
            Self::Replaced => "its lock file was replaced or unlinked",
            Self::MaxHold => "its max_hold ended",
            Self::TokenWentBack => "its token went backwards: the engine lost or restored its state",
            Self::Closed => "its Locks was closed",
        })
    }
}

/// The order to leave no trace of a claim.
#[derive(Clone, Debug)]
pub struct Release {
    /// The claim.
    pub id: ClaimId,
    /// What it claims or holds.
    pub name: Name,
    /// How.
    pub mode: Mode,
    /// The first token of the grant, when the claim is known to hold; the engine then says whether that one was there.
    pub token: Option<Token>,
    /// How the hold ended, for the next one's [`Previous`]: `Clean` or `Abandoned`, or, of a hold that nobody used, what
    /// its own grant said. Counts only together with `token`: without one, what was known before stays.
    pub ended: Previous,
    /// Keep the name taken for this time from now, by nobody ("at least for").
    pub keep: Option<Duration>,
}

/// What an engine answers to the release of one claim.
#[derive(Debug)]
pub enum Released {
    /// A hold or a place in line was there and is gone; of a release with a token: the hold with that token.
    Freed,
    /// It was not there, nothing else of the claim is left, and no earlier request of this id can create anything any more.
    NotThere,
    /// The engine did not say: the release must be sent again.
    Unknown(EngineError),
}

/// A hint from the engine that something changed. News may be lost, doubled and late: `claim` and `renew` are the truth.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notification {
    /// A waiting claim was granted.
    Granted {
        /// The name.
        name: Name,
        /// The claim.
        id: ClaimId,
        /// What was granted; its `ttl` is the claim time.
        grant: Grant,
        /// A local time certainly not after the moment of the grant; `None`: ask before believing.
        since: Option<Instant>,
    },
    /// Asking for this claim may pay now.
    Recheck {
        /// The name.
        name: Name,
        /// The claim.
        id: ClaimId,
    },
    /// This hold is lost.
    Lost {
        /// The name.
        name: Name,
        /// The claim.
        id: ClaimId,
        /// Why.
        loss: Loss,
    },
    /// The engine's clock went forward, so that leases may have ended there before their time: no hold is to be believed in
    /// until it is renewed, which is done at once.
    Doubt,
    /// News may have been missed: ask for every waiting claim and renew every hold.
    AskAll,
}

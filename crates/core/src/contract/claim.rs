//! A claim (one attempt to hold a name), and the answers of an engine to it.

use std::{fmt, sync::Arc, time::Duration};

use crate::{EngineError, Fault, Instant, Mode, Name, TimeLeft, Token};

/// Identifies one claim: 128 random bits from the operating system, made before anything is sent and never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub [u8; 16]);

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl ClaimId {
    /// Parses the displayed form: 32 hexadecimal digits.
    #[doc(hidden)]
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
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
    /// The id of this claim.
    pub id: ClaimId,
    /// The name to hold.
    pub name: Name,
    /// The mode in which to hold it.
    pub mode: Mode,
    /// The requested lease time; an engine may grant another time, which is in its [`Grant`].
    pub ttl: Duration,
    /// How long a *pushed* grant (one made by a release while this claim waits) lasts, unless the claim renews it or
    /// asks for it; at most `ttl`.
    pub claim_time: Duration,
    /// Whether the claim may enter the queue when the name is taken.
    pub may_queue: bool,
    /// How many tokens the grant shall carry, for hand-over inside the process; engines that mint no blocks of tokens
    /// give 1.
    pub tokens: u32,
    /// The label of the claimant, shown to others.
    pub owner: Arc<str>,
    /// Whether the claiming process ends its work under the lock on SIGTERM, as `leasehold run` does. An engine that
    /// can only ask a holder to stop ([`Breaking::Ask`](crate::Breaking::Ask)) may then signal this process.
    pub stops_on_term: bool,
}

/// How to call the verb `claim` of an engine: whether the call may create anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Take the name, or enter the queue: the first call for a claim.
    Create,
    /// Only report the state of the claim: a later call for a claim that waits. If the claim holds, its lease is
    /// extended to the full ttl and the same token returned.
    Ask,
}

/// The answer of an engine to a claim.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The claim holds the name.
    Held(Grant),
    /// The claim is in the queue.
    Waiting(Hint),
    /// The name is taken and nothing of the claim remains on the engine.
    Taken(Hint),
    /// The engine does not know this claim (any more), or the claim was released before: it can never be granted.
    Gone,
}

/// A hold as granted by the engine.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The first token of the grant.
    pub token: Token,
    /// How many tokens in a row the grant carries, `token` included; at least 1.
    pub tokens: u32,
    /// The granted time, which the engine counts from the moment of the grant; `None` where holds never lapse.
    pub ttl: Option<Duration>,
    /// How the hold before this one ended.
    pub previous: Previous,
}

/// How the hold before a grant ended. After anything but `Clean`, the protected data may be half-written. `Clean` does
/// not prove that it is whole: a guard that is dropped, or released after an error, is released. Engines that do not
/// store how a hold ended, such as etcd and ZooKeeper, answer `Unknown` to every grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Previous {
    /// It was released, or there was no earlier hold.
    Clean,
    /// Its work ended half-way: a panic dropped the guard, or the future of a `run` was dropped during its work.
    Abandoned,
    /// Its lease ran out, or its process died.
    Lapsed,
    /// An operator broke it.
    Broken,
    /// The engine does not know.
    Unknown,
}

impl Previous {
    /// Of the ends of two concurrent holds, the one that matters more to the next holder.
    pub(crate) fn worse_of(self, other: Self) -> Self {
        let severity = |end| match end {
            Self::Clean => 0,
            Self::Unknown => 1,
            Self::Abandoned => 2,
            Self::Lapsed => 3,
            Self::Broken => 4,
        };
        if severity(other) > severity(self) { other } else { self }
    }
}

/// What an engine knows about a claim that does not hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    /// The time after which asking again may succeed even without a notification (a lease runs out, the minimum hold
    /// time of a name ends).
    pub ask_in: Option<Duration>,
    /// How many claims are ahead of this one in the queue.
    pub ahead: Option<u32>,
    /// Why the name can stay taken forever, if the engine cannot know whether the holder will ever release it; else
    /// `None`. A request whose wait ends without a grant reports this text as a misconfiguration.
    pub obstacle: Option<&'static str>,
}

impl Hint {
    /// The hint to ask again after this time.
    #[must_use]
    pub const fn ask_in(time: Duration) -> Self {
        Self { ask_in: Some(time), ahead: None, obstacle: None }
    }
}

/// A granted claim, as passed to `renew`. Engines compare the id *and* the token with what they store.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The claim.
    pub id: ClaimId,
    /// The name held.
    pub name: Name,
    /// The mode in which it is held.
    pub mode: Mode,
    /// The first token of the grant.
    pub token: Token,
    /// The lease time to extend to.
    pub ttl: Duration,
}

/// The answer of an engine to the renewal of one hold.
#[derive(Debug)]
pub enum Renewed {
    /// The hold is extended by this time, counted from the engine's answer; `None` where holds never lapse.
    Extended {
        /// The time granted.
        ttl: Option<Duration>,
        /// How long the hold had left before this renewal. Core compares it with the lease, and tells the holder of a
        /// change that another program made.
        left: TimeLeft,
    },
    /// The name is no longer held by this claim.
    Lost(Loss),
    /// The engine did not confirm the renewal, and the hold may still exist: its deadline stays as it is.
    Unknown(EngineError),
}

/// Why a hold ended before its guard did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal was acknowledged before the deadline.
    Lapsed,
    /// The engine reports that the hold is gone or belongs to another claim.
    Gone,
    /// An operator broke the hold.
    Broken,
    /// The lock file was replaced or unlinked.
    Replaced,
    /// Another program's value is under the lock key (Redis): a program overwrote the value without comparing it, or
    /// took the key correctly after the key had ended as for [`EndedEarly`](Self::EndedEarly).
    Overwritten,
    /// The lock key is gone, and the record of the hold is there (Redis): another program deleted the key or shortened
    /// its time, the server evicted it, the server's clock was set forward, or the server got a renewal too late.
    EndedEarly,
    /// The time limit `max_hold` was reached.
    MaxHold,
    /// The token of the grant was not larger than the token of an earlier grant: the engine lost its state or was
    /// restored to an old one.
    TokenWentBack,
    /// The `Locks` was closed, or its keeper has ended.
    Closed,
}

impl Loss {
    /// The reason as one word or two, for labels of metrics: `max_hold`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Gone => "gone",
            Self::Broken => "broken",
            Self::Replaced => "replaced",
            Self::Overwritten => "overwritten",
            Self::EndedEarly => "ended_early",
            Self::MaxHold => "max_hold",
            Self::TokenWentBack => "token_went_back",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lapsed => "its lease ran out before a renewal was acknowledged",
            Self::Gone => "the engine reports it as gone",
            Self::Broken => "an operator broke it",
            Self::Replaced => "its lock file was replaced or unlinked",
            Self::Overwritten => "another program's value is under its key: a program overwrote the key without comparing its value, or took the key after it ended early",
            Self::EndedEarly => "its key is gone, and the rest of its data is there: the renewal arrived after the end of its lease, or a program deleted the key or shortened its time without comparing its value, or the server evicted the key, or the server's clock was set forward",
            Self::MaxHold => "its max_hold ended",
            Self::TokenWentBack => "its token went backwards: the engine lost or restored its state",
            Self::Closed => "its Locks was closed",
        })
    }
}

/// The request to remove every trace of a claim.
#[derive(Clone, Debug)]
pub struct Release {
    /// The claim.
    pub id: ClaimId,
    /// The name that it claims or holds.
    pub name: Name,
    /// The mode of the claim.
    pub mode: Mode,
    /// The first token of the grant, when the claim is known to hold; the engine then answers whether the hold with
    /// that token was there.
    pub token: Option<Token>,
    /// How the hold ended, for the [`Previous`] of the next grant: `Clean` or `Abandoned`; for a hold that was never
    /// used, the `previous` of its own grant. Counts only together with `token`: a release without a token does not
    /// change what the engine reports as `previous`.
    pub ended: Previous,
    /// The remaining minimum hold time ("at least for"), counted from the moment at which the engine applies the
    /// release: for this time the name stays taken, without a holder.
    pub min_hold: Option<Duration>,
}

impl Release {
    /// Removes every trace of a claim that nobody uses. It has no token: a hold that was never used must not hide from
    /// the next holder how the hold before it ended.
    #[must_use]
    pub fn of_unused(claim: &Claim) -> Self {
        let (id, name, mode) = (claim.id, claim.name.clone(), claim.mode);
        Self { id, name, mode, token: None, ended: Previous::Clean, min_hold: None }
    }
}

/// The answer of an engine to the release of one claim.
#[derive(Debug)]
pub enum Released {
    /// A hold or a queue entry of the claim was there and has been removed; for a release with a token: the hold with
    /// that token.
    Freed,
    /// Neither hold nor queue entry of the claim was there, nothing of the claim is left, and no earlier request with
    /// this id can create anything any more.
    NotThere,
    /// The engine did not answer: the release must be sent again.
    Unknown(EngineError),
}

impl Released {
    /// The fault, if the engine did not answer.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Unknown(error) => Some(error.fault),
            Self::Freed | Self::NotThere => None,
        }
    }
}

/// A hint from the engine that something changed. Notifications may be lost, doubled and late: only the answers to
/// `claim` and `renew` are authoritative.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notification {
    /// A waiting claim was granted.
    Granted {
        /// The name.
        name: Name,
        /// The claim.
        id: ClaimId,
        /// The grant; its `ttl` is the claim time.
        grant: Grant,
        /// A local time that is certainly not after the moment of the grant. If it is `None`, core must ask the engine
        /// before it relies on the grant.
        since: Option<Instant>,
    },
    /// Asking for this claim again may succeed now.
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
        /// The reason.
        loss: Loss,
    },
    /// The memo of this name, or the hold that wrote it, may have changed: see [`Memos::follow`](crate::Memos::follow).
    Memo {
        /// The name.
        name: Name,
    },
    /// Holds may have ended early on the engine, because its clock was set forward or another server replaced it: no
    /// hold is valid until it is renewed. Core renews all holds immediately.
    Doubt,
    /// Notifications may have been missed: ask for every waiting claim, renew every hold, and read every followed memo.
    AskAll,
}

//! Events for metrics and traces: what an observer of the user receives.

use std::time::Duration;

use crate::{ErrorKind, Loss, Mode, Name, TimeChange, Token};

/// Something that happened to a request, to a hold, or to a connection of one `Locks`.
///
/// Each request begins with [`WaitBegun`](Self::WaitBegun) and ends with exactly one of [`Granted`](Self::Granted),
/// [`Refused`](Self::Refused) and [`Cancelled`](Self::Cancelled). Each guard that was granted ends with exactly one
/// [`Released`](Self::Released), and may have [`Converted`](Self::Converted) events before it. A request whose options
/// are wrong begins nothing and has no event.
///
/// A request for several names has these events for each of its names, however often it tries or begins again. All
/// names are `Granted` when the last of them is. If the request ends with an error, the name that the error is about is
/// `Refused`, and the others are `Cancelled`.
///
/// `engine` is the name of the engine: `file`, `redis` and so on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request began: its future was polled for the first time. Also for a name that is free, and for a try.
    #[non_exhaustive]
    WaitBegun {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The wanted mode.
        mode: Mode,
    },
    /// A request is in the queue, or its place in the queue changed.
    #[non_exhaustive]
    Queued {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The wanted mode.
        mode: Mode,
        /// How many requests are ahead, without the holder: those in the queue of the engine, or, for a request behind
        /// others of this process, those ahead of it in this process. `None` where the engine does not tell.
        ahead: Option<u32>,
    },
    /// A guard was granted.
    #[non_exhaustive]
    Granted {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it is held.
        mode: Mode,
        /// The token.
        token: Token,
        /// How long the request waited.
        waited: Duration,
        /// Whether the request had to wait for another holder or request.
        contended: bool,
        /// Whether the hold was handed over inside the process, without the engine.
        local: bool,
    },
    /// The future of a request was dropped before the request was decided.
    #[non_exhaustive]
    Cancelled {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The wanted mode.
        mode: Mode,
        /// How long the request had waited.
        waited: Duration,
        /// Whether the request had to wait for another holder or request, as far as it was known.
        contended: bool,
    },
    /// A request ended without a guard.
    #[non_exhaustive]
    Refused {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The wanted mode.
        mode: Mode,
        /// The reason.
        error: &'a crate::Error,
        /// How long the request waited.
        waited: Duration,
    },
    /// A renewal was confirmed.
    #[non_exhaustive]
    Renewed {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it is held.
        mode: Mode,
        /// The first token of the hold.
        token: Token,
        /// For how much longer the hold would have been valid without this renewal; zero if it was in doubt. `None`
        /// where a hold cannot lapse.
        margin: Option<Duration>,
    },
    /// The engine did not confirm a renewal. The hold is valid until its deadline, and the renewal is tried again.
    #[non_exhaustive]
    RenewalFailed {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it is held.
        mode: Mode,
        /// The first token of the hold.
        token: Token,
        /// The error, on one line.
        error: &'a str,
        /// Whether the renewal before this one was confirmed, or there was none.
        first: bool,
    },
    /// A renewal found that another program had changed the time of the hold (Redis). The hold is valid. Reported again
    /// only after a renewal that found no change, or another change.
    #[non_exhaustive]
    TimeChanged {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it is held.
        mode: Mode,
        /// The first token of the hold.
        token: Token,
        /// The change.
        change: TimeChange,
    },
    /// The hold of a guard was lost. If several guards share a hold, each of them has this event.
    #[non_exhaustive]
    Lost {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it was held.
        mode: Mode,
        /// The token of the guard.
        token: Token,
        /// The reason.
        loss: Loss,
        /// The error of the last renewal, if the hold lapsed because that renewal failed.
        trouble: Option<&'a str>,
        /// Whether the answer to a release reported the loss: the guard had its [`Released`](Self::Released) before.
        at_release: bool,
    },
    /// A guard was converted: an exclusive one is shared now, or a shared one exclusive. Its end, and its loss, have
    /// the new mode and the new token.
    #[non_exhaustive]
    Converted {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it is held now.
        mode: Mode,
        /// The token now.
        token: Token,
        /// The mode in which it was held before.
        from: Mode,
    },
    /// A guard ended: it was released or dropped.
    #[non_exhaustive]
    Released {
        /// The engine.
        engine: &'a str,
        /// The name.
        name: &'a Name,
        /// The mode in which it was held.
        mode: Mode,
        /// The token.
        token: Token,
        /// How long the guard existed.
        held: Duration,
        /// How the guard ended.
        end: GuardEnd,
    },
    /// A request to the engine was answered, or failed. Releases and renewals are sent in batches, which have one event
    /// each.
    #[non_exhaustive]
    Answered {
        /// The engine.
        engine: &'a str,
        /// What was asked.
        verb: Verb,
        /// The time from the request to its answer.
        took: Duration,
        /// The kind of the error; of a batch, that of one of its errors.
        error: Option<ErrorKind>,
    },
    /// A connection to a server was made.
    #[non_exhaustive]
    Connected {
        /// The engine.
        engine: &'a str,
        /// The address of the server.
        server: &'a str,
        /// Whether there was an earlier connection.
        again: bool,
    },
    /// A connection to a server is gone.
    #[non_exhaustive]
    Disconnected {
        /// The engine.
        engine: &'a str,
        /// The address of the server.
        server: &'a str,
    },
    /// The requests go to another server than before: to the new master after a fail-over, or to another server of an
    /// ensemble.
    #[non_exhaustive]
    Switched {
        /// The engine.
        engine: &'a str,
        /// The address of the server before.
        from: &'a str,
        /// The address of the server now.
        to: &'a str,
    },
}

/// How a guard ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardEnd {
    /// It was released or dropped.
    Released,
    /// A panic dropped it, or its `run` was dropped or cancelled half-way.
    Abandoned,
    /// Its hold was lost before.
    Lost(Loss),
    /// The future of its request was dropped when the guard had been granted, and had not been returned.
    Unused,
    /// Its hold was left to a [`Handle`](crate::Handle).
    Left,
}

/// What is asked of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// To hold a name.
    Claim,
    /// To extend holds.
    Renew,
    /// To end holds and waits.
    Release,
    /// To write a memo.
    Memo,
    /// To make an exclusive hold shared, or a shared one exclusive.
    Convert,
}

impl Verb {
    /// The verb as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Memo => "memo",
            Self::Convert => "convert",
        }
    }
}

/// Receives events. It is called on user threads and on the keeper's thread, so an implementation must return quickly
/// and must not take locks of this library. A panic in it is reported to `tracing`, and harms nothing else.
pub trait Observe: Send + Sync + 'static {
    /// Receives one event.
    fn event(&self, event: &Event<'_>);
}

impl Event<'_> {
    /// The name of the engine.
    #[must_use]
    pub const fn engine(&self) -> &str {
        match self {
            Self::WaitBegun { engine, .. }
            | Self::Queued { engine, .. }
            | Self::Granted { engine, .. }
            | Self::Cancelled { engine, .. }
            | Self::Refused { engine, .. }
            | Self::Renewed { engine, .. }
            | Self::RenewalFailed { engine, .. }
            | Self::TimeChanged { engine, .. }
            | Self::Lost { engine, .. }
            | Self::Converted { engine, .. }
            | Self::Released { engine, .. }
            | Self::Answered { engine, .. }
            | Self::Connected { engine, .. }
            | Self::Disconnected { engine, .. }
            | Self::Switched { engine, .. } => engine,
        }
    }

    /// The name of the lock; `None` for the events of requests to the engine and of connections.
    #[must_use]
    pub const fn name(&self) -> Option<&Name> {
        match self {
            Self::WaitBegun { name, .. }
            | Self::Queued { name, .. }
            | Self::Granted { name, .. }
            | Self::Cancelled { name, .. }
            | Self::Refused { name, .. }
            | Self::Renewed { name, .. }
            | Self::RenewalFailed { name, .. }
            | Self::TimeChanged { name, .. }
            | Self::Lost { name, .. }
            | Self::Converted { name, .. }
            | Self::Released { name, .. } => Some(name),
            Self::Answered { .. }
            | Self::Connected { .. }
            | Self::Disconnected { .. }
            | Self::Switched { .. } => None,
        }
    }

    /// The mode of the request or the hold; `None` for the events of requests to the engine and of connections.
    #[must_use]
    pub const fn mode(&self) -> Option<Mode> {
        match self {
            Self::WaitBegun { mode, .. }
            | Self::Queued { mode, .. }
            | Self::Granted { mode, .. }
            | Self::Cancelled { mode, .. }
            | Self::Refused { mode, .. }
            | Self::Renewed { mode, .. }
            | Self::RenewalFailed { mode, .. }
            | Self::TimeChanged { mode, .. }
            | Self::Lost { mode, .. }
            | Self::Converted { mode, .. }
            | Self::Released { mode, .. } => Some(*mode),
            Self::Answered { .. }
            | Self::Connected { .. }
            | Self::Disconnected { .. }
            | Self::Switched { .. } => None,
        }
    }

    /// The token of the guard or the hold; `None` for events of requests without a hold, and of connections.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. }
            | Self::Renewed { token, .. }
            | Self::RenewalFailed { token, .. }
            | Self::TimeChanged { token, .. }
            | Self::Lost { token, .. }
            | Self::Converted { token, .. }
            | Self::Released { token, .. } => Some(*token),
            _ => None,
        }
    }
}

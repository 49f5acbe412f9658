//! What can go wrong: for users ([`Error`]) and between core and engines ([`EngineError`]).

use std::{error::Error as StdError, fmt};

use crate::{Loss, Name, contract::inspect::cut};

type Source = Box<dyn StdError + Send + Sync>;

/// Why a call did not do what was asked. Says what happened, to which name, on which engine; never holds a secret.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
}

/// The kinds of [`Error`], never folded into each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds it, and the call was not to wait.
    Taken,
    /// The wait ended, and the engine said "taken" all the while.
    TimedOut,
    /// The engine cannot be reached, or the wait ended while it could not be.
    Unreachable,
    /// The request may or may not have been applied.
    Unknown,
    /// The engine said no for a reason of its own: read-only, out of memory, disk full, line full.
    Refused,
    /// Credentials or permissions.
    Denied,
    /// The URL or the configuration is wrong, the key holds something else, or two modes or limits meet on one name.
    Misconfigured,
    /// The arguments of the call are wrong.
    Invalid,
    /// The hold was lost before.
    Lost(Loss),
    /// The protected resource has seen a larger token: the hold was overtaken, and nothing was written.
    Fenced,
    /// The `Locks` was closed, or its keeper is gone.
    Closed,
    /// This process was forked from the one that made the `Locks`.
    Forked,
    /// A bug in leasehold or its engine.
    Internal,
}

impl Error {
    /// An error of `kind` with a message that says what happened and what to do.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Wrong arguments.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Wrong URL or configuration.
    #[must_use]
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misconfigured, message)
    }

    /// The error that stopped a claim of `name` on `engine`.
    #[must_use]
    pub fn from_engine(error: EngineError, name: &Name, engine: &str) -> Self {
        Self::sorted(error, format_args!("{engine} lock {:?}", name.as_str()))
    }

    /// An error of `engine` that is about no name.
    #[must_use]
    pub fn from_engine_alone(error: EngineError, engine: &str) -> Self {
        Self::sorted(error, format_args!("{engine} engine"))
    }

    fn sorted(error: EngineError, about: fmt::Arguments<'_>) -> Self {
        let kind = match error.fault {
            Fault::Retry | Fault::Full => ErrorKind::Unreachable,
            Fault::Unknown => ErrorKind::Unknown,
            Fault::Refused => ErrorKind::Refused,
            Fault::Denied => ErrorKind::Denied,
            Fault::Misconfigured => ErrorKind::Misconfigured,
            Fault::Internal => ErrorKind::Internal,
        };
        Self { kind, message: format!("{about}: {}", error.message), source: error.source }
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Somebody else holds it: at once, or until the wait ended.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self.kind, ErrorKind::Taken | ErrorKind::TimedOut)
    }

    /// The wait ended while the name was taken.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        matches!(self.kind, ErrorKind::TimedOut)
    }

    /// The engine cannot be reached.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable)
    }

    /// The request may or may not have been applied.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self.kind, ErrorKind::Unknown)
    }

    /// The engine said no for a reason of its own.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self.kind, ErrorKind::Refused)
    }

    /// Credentials or permissions.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self.kind, ErrorKind::Denied)
    }

    /// URL, configuration, or what stands under the key.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, ErrorKind::Misconfigured)
    }

    /// The arguments of the call are wrong.
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        matches!(self.kind, ErrorKind::Invalid)
    }

    /// The hold was lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self.kind, ErrorKind::Lost(_))
    }

    /// The protected resource has seen a larger token.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self.kind, ErrorKind::Fenced)
    }

    /// The `Locks` was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.kind, ErrorKind::Closed)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {})", self.kind, self.message)
    }
}

/// What an engine says when it cannot answer, sorted by what that means for the request.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// What it means for the request.
    pub fault: Fault,
    /// What happened and what to do, without name and engine, without secrets.
    pub message: String,
    /// The cause.
    pub source: Option<Source>,
}

/// What a failure means for the request that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Certainly not applied; worth trying again (cannot connect, loading, busy).
    Retry,
    /// Certainly not applied: the server answers, and takes no more connections for now. It was reached, so whoever waits goes on
    /// waiting, and tries ever more seldom.
    Full,
    /// May have been applied.
    Unknown,
    /// Certainly not applied, and trying again at once will not help (read-only, out of memory, disk full, line full).
    Refused,
    /// Certainly not applied: credentials or permissions.
    Denied,
    /// Certainly not applied: wrong configuration, something else under the key, two modes or limits on one name.
    Misconfigured,
    /// A bug: trying again will not help, and whether it was applied is not certain.
    Internal,
}

impl Fault {
    /// Whether the request that met it may have been applied.
    #[must_use]
    pub const fn may_be_applied(self) -> bool {
        matches!(self, Self::Unknown | Self::Internal)
    }

    /// Whether the engine did not answer, or cannot for now.
    #[must_use]
    pub(crate) const fn is_outage(self) -> bool {
        matches!(self, Self::Retry | Self::Unknown)
    }
}

/// The longest message, in characters: a server may say more.
const MAX_SHOWN: usize = 1000;

impl EngineError {
    /// An error with its meaning and its message.
    #[must_use]
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        let mut message = message.into();
        cut(&mut message, MAX_SHOWN);
        Self { fault, message, source: None }
    }

    /// The same for another part of a request, without its cause.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::new(self.fault, self.message.clone())
    }

    /// The same with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineError({:?}: {})", self.fault, self.message)
    }
}

//! Errors: for users ([`Error`]), and between core and engines ([`EngineError`]).

use std::{error::Error as StdError, fmt};

use crate::{Loss, Name, contract::inspect::truncate_chars};

type BoxedError = Box<dyn StdError + Send + Sync>;

/// Why a call failed. Says what happened, to which name, on which engine; never contains a secret.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<BoxedError>,
}

/// The kinds of [`Error`]. Different causes are never reported as the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another request holds the name, and this call must not wait.
    Taken,
    /// As many requests of this `Locks` wait as `max_waiting` allows.
    Busy,
    /// The wait ended, and the engine answered "taken" all the time.
    TimedOut,
    /// The engine cannot be reached, or could not be when the wait ended.
    Unreachable,
    /// The request may or may not have been applied.
    Unknown,
    /// The engine refused for a reason of its own: read-only, out of memory, disk full, queue full.
    Refused,
    /// Wrong credentials or missing permissions.
    Denied,
    /// The URL or the configuration is wrong, the key holds foreign data, or two modes or limits conflict on one name.
    Misconfigured,
    /// The arguments of the call are wrong.
    Invalid,
    /// The hold was lost before the call.
    Lost(Loss),
    /// The protected resource has seen a larger token: the name was granted again after this hold. Nothing was written.
    Fenced,
    /// The `Locks` was closed, or its keeper has ended.
    Closed,
    /// This process was forked from the one that made the `Locks`.
    Forked,
    /// A bug in leasehold or its engine.
    Internal,
}

impl Error {
    /// An error of `kind`. The message states what happened and what to do.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error about wrong arguments.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// An error about a wrong URL or configuration.
    #[must_use]
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misconfigured, message)
    }

    /// The error that stopped a claim of `name` on `engine`.
    #[must_use]
    pub fn from_engine(error: EngineError, name: &Name, engine: &str) -> Self {
        Self::classify(error, format_args!("{engine} lock {:?}", name.as_str()))
    }

    /// An error of `engine` that concerns no particular name.
    #[must_use]
    pub fn from_engine_alone(error: EngineError, engine: &str) -> Self {
        Self::classify(error, format_args!("{engine} engine"))
    }

    /// Turns the fault of an engine into an error for users. `subject`: what the message is about.
    fn classify(error: EngineError, subject: fmt::Arguments<'_>) -> Self {
        let kind = match error.fault {
            Fault::Retry | Fault::Full => ErrorKind::Unreachable,
            Fault::Unknown => ErrorKind::Unknown,
            Fault::Refused => ErrorKind::Refused,
            Fault::Denied => ErrorKind::Denied,
            Fault::Misconfigured => ErrorKind::Misconfigured,
            Fault::Internal => ErrorKind::Internal,
        };
        Self { kind, message: format!("{subject}: {}", error.message), source: error.source }
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Another request held the name: at the last allowed try, or all the time until the wait ended.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self.kind, ErrorKind::Taken | ErrorKind::TimedOut)
    }

    /// As many requests of this `Locks` wait as `max_waiting` allows: this one was not sent.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy)
    }

    /// The wait ended, and the name was taken all the time.
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

    /// The engine refused for a reason of its own.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self.kind, ErrorKind::Refused)
    }

    /// Wrong credentials or missing permissions.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self.kind, ErrorKind::Denied)
    }

    /// The URL, the configuration, or the data under the key is wrong.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, ErrorKind::Misconfigured)
    }

    /// The arguments of the call are wrong.
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        matches!(self.kind, ErrorKind::Invalid)
    }

    /// The hold was lost before the call.
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

/// The failure of a request to an engine, classified by its meaning for the request.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    /// Its meaning for the request.
    pub fault: Fault,
    /// What happened and what to do, without name and engine, without secrets.
    pub message: String,
    /// The cause.
    pub source: Option<BoxedError>,
}

/// The meaning of a failure for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Certainly not applied; a retry may succeed (cannot connect, loading, busy).
    Retry,
    /// Certainly not applied: the server answers, but accepts no more connections for now. It was reached, so waiting
    /// requests continue to wait and retry with growing pauses.
    Full,
    /// May have been applied.
    Unknown,
    /// Certainly not applied, and an immediate retry will not help (read-only, out of memory, disk full, queue full).
    Refused,
    /// Certainly not applied: wrong credentials or missing permissions.
    Denied,
    /// Certainly not applied: wrong configuration, foreign data under the key, two modes or limits on one name.
    Misconfigured,
    /// A bug: a retry will not help, and the request may or may not have been applied.
    Internal,
}

impl Fault {
    /// Whether the failed request may have been applied.
    #[must_use]
    pub const fn may_be_applied(self) -> bool {
        matches!(self, Self::Unknown | Self::Internal)
    }

    /// Whether the engine did not answer, or cannot answer for now.
    #[must_use]
    pub(crate) const fn is_outage(self) -> bool {
        matches!(self, Self::Retry | Self::Unknown)
    }
}

/// The longest message, in characters. A server may send a longer text, which is cut.
const MAX_MESSAGE_CHARS: usize = 1000;

impl EngineError {
    /// An error with its fault and its message.
    #[must_use]
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate_chars(&mut message, MAX_MESSAGE_CHARS);
        Self { fault, message, source: None }
    }

    /// A copy without the source, for another claim of the same failed request.
    #[must_use]
    pub fn without_source(&self) -> Self {
        Self::new(self.fault, self.message.clone())
    }

    /// Adds the source.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxedError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineError({:?}: {})", self.fault, self.message)
    }
}

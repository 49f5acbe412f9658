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
    name: Option<Name>,
    source: Option<BoxedError>,
    is_of_obstacle: bool,
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
    /// The result that is stored for the key belongs to another payload: the same key was used for two things.
    Mismatch,
    /// The `Locks` was closed, or its keeper has ended.
    Closed,
    /// This process was forked from the one that made the `Locks`.
    Forked,
    /// A bug in leasehold or its engine.
    Internal,
}

impl ErrorKind {
    /// The kind as one word or two, for labels of metrics: `timed_out`. Kinds of losses have the same word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Misconfigured => "misconfigured",
            Self::Invalid => "invalid",
            Self::Lost(_) => "lost",
            Self::Fenced => "fenced",
            Self::Mismatch => "mismatch",
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::Internal => "internal",
        }
    }
}

impl Error {
    /// An error of `kind`. The message states what happened and what to do.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Refused, "the shop is closed");
    /// assert_eq!(error.to_string(), "the shop is closed");
    /// ```
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), name: None, source: None, is_of_obstacle: false }
    }

    /// An error about wrong arguments.
    ///
    /// ```
    /// assert!(leasehold::Error::invalid("an order needs a number").is_invalid());
    /// ```
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// An error about a wrong URL or configuration.
    ///
    /// ```
    /// assert!(leasehold::Error::misconfigured("no URL is given").is_misconfigured());
    /// ```
    #[must_use]
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misconfigured, message)
    }

    /// The error that stopped a claim of `name` on `engine`.
    #[doc(hidden)]
    #[must_use]
    pub fn from_engine(error: EngineError, name: &Name, engine: &str) -> Self {
        Self::classify(error, format_args!("{engine} lock {:?}", name.as_str())).of_name(name)
    }

    /// An error of `engine` that concerns no particular name.
    #[doc(hidden)]
    #[must_use]
    pub fn from_engine_alone(error: EngineError, engine: &str) -> Self {
        Self::classify(error, format_args!("{engine} engine"))
    }

    /// Turns the fault of an engine into an error for users. `subject`: what the message is about.
    fn classify(error: EngineError, subject: fmt::Arguments<'_>) -> Self {
        let message = format!("{subject}: {}", error.message);
        Self { kind: error.fault.kind(), message, name: None, source: error.source, is_of_obstacle: false }
    }

    /// The same error, which concerns the lock `name`.
    #[must_use]
    pub(crate) fn of_name(mut self, name: &Name) -> Self {
        self.name.get_or_insert_with(|| name.clone());
        self
    }

    /// The same error, for a name that is blocked by something that may never end: a further try may succeed.
    pub(crate) fn of_obstacle(self) -> Self {
        Self { is_of_obstacle: true, ..self }
    }

    /// Whether the name was blocked by something that may never end.
    pub(crate) const fn is_of_obstacle(&self) -> bool {
        self.is_of_obstacle
    }

    /// The same error with another message.
    pub(crate) fn with_message(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// The kind of the error.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::ErrorKind;
    /// let held = locks.mutex("order/17").blocking().acquire()?;
    /// let error = locks.mutex("order/17").blocking().try_acquire().unwrap_err();
    /// match error.kind() {
    ///     ErrorKind::Taken | ErrorKind::TimedOut => println!("somebody else works on it"),
    ///     ErrorKind::Unreachable => println!("try again later"),
    ///     _ => return Err(error),
    /// }
    /// # drop(held);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The name of the lock that the error concerns; `None` for an error of no lock, or of a name that is invalid.
    #[must_use]
    pub const fn name(&self) -> Option<&Name> {
        self.name.as_ref()
    }

    /// Another request held the name: at the last allowed try, or all the time until the wait ended.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Taken, "an example").is_taken());
    /// ```
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self.kind, ErrorKind::Taken | ErrorKind::TimedOut)
    }

    /// As many requests of this `Locks` wait as `max_waiting` allows: this one was not sent.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Busy, "an example").is_busy());
    /// ```
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy)
    }

    /// The wait ended, and the name was taken all the time.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::TimedOut, "an example").is_timed_out());
    /// ```
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        matches!(self.kind, ErrorKind::TimedOut)
    }

    /// The engine cannot be reached.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Unreachable, "an example").is_unreachable());
    /// ```
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable)
    }

    /// The request may or may not have been applied.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Unknown, "an example").is_unknown());
    /// ```
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self.kind, ErrorKind::Unknown)
    }

    /// The engine refused for a reason of its own.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Refused, "an example").is_refused());
    /// ```
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self.kind, ErrorKind::Refused)
    }

    /// Wrong credentials or missing permissions.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Denied, "an example").is_denied());
    /// ```
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        matches!(self.kind, ErrorKind::Denied)
    }

    /// The URL, the configuration, or the data under the key is wrong.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Misconfigured, "an example").is_misconfigured());
    /// ```
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        matches!(self.kind, ErrorKind::Misconfigured)
    }

    /// The arguments of the call are wrong.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Invalid, "an example").is_invalid());
    /// ```
    #[must_use]
    pub const fn is_invalid(&self) -> bool {
        matches!(self.kind, ErrorKind::Invalid)
    }

    /// The hold was lost before the call.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind, Loss};
    /// assert!(Error::new(ErrorKind::Lost(Loss::Lapsed), "an example").is_lost());
    /// ```
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self.kind, ErrorKind::Lost(_))
    }

    /// The protected resource has seen a larger token.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Fenced, "an example").is_fenced());
    /// ```
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self.kind, ErrorKind::Fenced)
    }

    /// The stored result belongs to another payload.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Mismatch, "an example").is_mismatch());
    /// ```
    #[must_use]
    pub const fn is_mismatch(&self) -> bool {
        matches!(self.kind, ErrorKind::Mismatch)
    }

    /// The `Locks` was closed.
    ///
    /// ```
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Closed, "an example").is_closed());
    /// ```
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
    /// The kind of the error that users get.
    pub(crate) const fn kind(self) -> ErrorKind {
        match self {
            Self::Retry | Self::Full => ErrorKind::Unreachable,
            Self::Unknown => ErrorKind::Unknown,
            Self::Refused => ErrorKind::Refused,
            Self::Denied => ErrorKind::Denied,
            Self::Misconfigured => ErrorKind::Misconfigured,
            Self::Internal => ErrorKind::Internal,
        }
    }

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

//! What a call for one tick returns.

use std::fmt;

use crate::Error;

/// What became of a tick in this call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ticked {
    /// This call ran the work of the tick.
    Ran,
    /// The tick had run already, here or in another process, or a later tick had.
    Done,
}

/// Why a call for one tick did not run it to its end. The error of the lock is apart from the error of the work.
#[non_exhaustive]
pub enum TickError<E> {
    /// The work did not begin in this call.
    NotBegun(Error),
    /// The work failed with this error. The tick is not recorded, and can run again; with
    /// [`at_most_once`](crate::TickRequest::at_most_once) it is recorded, and does not.
    Work(E),
    /// The lock was lost while the work ran: the work was cancelled by dropping its future, and may be half done. The
    /// tick is recorded only with [`at_most_once`](crate::TickRequest::at_most_once).
    Cancelled(Error),
    /// The work ran to its end, but the lock was lost before ([`is_lost`](Error::is_lost)), so a part of the work may
    /// have run beside another holder; or the engine refused the record, or did not confirm it
    /// ([`is_unknown`](Error::is_unknown)). A tick that is not recorded runs again.
    Unconfirmed(Error),
}

impl<E> TickError<E> {
    /// The error of the lock or of the record; `None` if the work itself failed.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:tick-error")?;
    /// use leasehold::Due;
    /// let error = locks.tick("report", Due::from_unix_secs(60)).run_blocking(|_| Err("no paper")).unwrap_err();
    /// assert!(error.lock_error().is_none());
    /// assert_eq!(error.into_work_error(), Some("no paper"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn lock_error(&self) -> Option<&Error> {
        match self {
            Self::NotBegun(error) | Self::Cancelled(error) | Self::Unconfirmed(error) => Some(error),
            Self::Work(_) => None,
        }
    }

    /// The error of the work, if the work failed: see [`lock_error`](Self::lock_error).
    #[must_use]
    pub fn into_work_error(self) -> Option<E> {
        match self {
            Self::Work(error) => Some(error),
            Self::NotBegun(_) | Self::Cancelled(_) | Self::Unconfirmed(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for TickError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Cancelled(error) => write!(f, "the work of the tick was cancelled: {error}"),
            Self::Unconfirmed(error) => write!(f, "the work of the tick ran to its end, but {error}"),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for TickError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun(error) => f.debug_tuple("NotBegun").field(error).finish(),
            Self::Work(error) => f.debug_tuple("Work").field(error).finish(),
            Self::Cancelled(error) => f.debug_tuple("Cancelled").field(error).finish(),
            Self::Unconfirmed(error) => f.debug_tuple("Unconfirmed").field(error).finish(),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for TickError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Work(error) => error.source(),
            Self::NotBegun(error) | Self::Cancelled(error) | Self::Unconfirmed(error) => error.source(),
        }
    }
}

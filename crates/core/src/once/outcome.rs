//! What a run of work that is done one time returns.

use std::fmt;

use crate::Error;

/// The result of work that is done one time.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// This call did the work, and its result is stored.
    Fresh(Vec<u8>),
    /// An earlier call did the work: this is its stored result.
    Replayed(Vec<u8>),
}

impl Ran {
    /// The result.
    ///
    /// ```
    /// assert_eq!(leasehold::Ran::Fresh(b"paid".to_vec()).bytes(), b"paid");
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Fresh(bytes) | Self::Replayed(bytes) => bytes,
        }
    }

    /// The result, without a copy.
    ///
    /// ```
    /// assert_eq!(leasehold::Ran::Fresh(b"paid".to_vec()).into_bytes(), b"paid");
    /// ```
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Fresh(bytes) | Self::Replayed(bytes) => bytes,
        }
    }

    /// Whether an earlier call did the work.
    ///
    /// ```
    /// assert!(leasehold::Ran::Replayed(Vec::new()).is_replayed());
    /// ```
    #[must_use]
    pub const fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }
}

/// The result may be confidential, so only its length is shown.
impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if self.is_replayed() { "Replayed" } else { "Fresh" };
        write!(f, "{stage}({} bytes)", self.bytes().len())
    }
}

/// Why a run of [`Once`](crate::Once) has no result. The error of the lock is apart from the error of the work.
#[non_exhaustive]
pub enum OnceError<E> {
    /// The work did not begin in this call.
    NotBegun(Error),
    /// The work failed with this error. Nothing is stored: the next call runs the work again.
    Work(E),
    /// The lock was lost while the work ran: the work was cancelled by dropping its future, and may be half done.
    /// Nothing is stored.
    Cancelled(Error),
    /// The work is done, with this result. The result is not stored: the lock was lost before
    /// ([`is_lost`](Error::is_lost)), so the work may have run beside another run; or the result has more than 64 KiB
    /// ([`is_invalid`](Error::is_invalid)); or the engine refused it. With [`is_unknown`](Error::is_unknown) it may be
    /// stored. A repeat of a result that is not stored runs the work again.
    NotStored {
        /// The result.
        bytes: Vec<u8>,
        /// Why it is not stored.
        error: Error,
    },
}

impl<E> OnceError<E> {
    /// The error of the lock or of the stored result; `None` if the work itself failed.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:lock-error")?;
    /// let error = locks.once("order-17").run_blocking(|_| Err::<&str, _>("no money")).unwrap_err();
    /// assert!(error.lock_error().is_none());
    /// assert_eq!(error.into_work_error(), Some("no money"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn lock_error(&self) -> Option<&Error> {
        match self {
            Self::NotBegun(error) | Self::Cancelled(error) | Self::NotStored { error, .. } => Some(error),
            Self::Work(_) => None,
        }
    }

    /// The error of the work, if the work failed.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:work-error")?;
    /// let error = locks.once("order-17").run_blocking(|_| Err::<&str, _>("no money")).unwrap_err();
    /// assert_eq!(error.into_work_error(), Some("no money"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn into_work_error(self) -> Option<E> {
        match self {
            Self::Work(error) => Some(error),
            Self::NotBegun(_) | Self::Cancelled(_) | Self::NotStored { .. } => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for OnceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Cancelled(error) => write!(f, "the work that is done one time was cancelled: {error}"),
            Self::NotStored { error, .. } if error.is_unknown() => {
                write!(f, "the work ran to its end, but its result is not known to be stored: {error}")
            }
            Self::NotStored { error, .. } => {
                write!(f, "the work ran to its end, but its result is not stored: {error}")
            }
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for OnceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun(error) => f.debug_tuple("NotBegun").field(error).finish(),
            Self::Work(error) => f.debug_tuple("Work").field(error).finish(),
            Self::Cancelled(error) => f.debug_tuple("Cancelled").field(error).finish(),
            Self::NotStored { bytes, error } => write!(f, "NotStored({} bytes, {error:?})", bytes.len()),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for OnceError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Work(error) => error.source(),
            Self::NotBegun(error) | Self::Cancelled(error) | Self::NotStored { error, .. } => error.source(),
        }
    }
}

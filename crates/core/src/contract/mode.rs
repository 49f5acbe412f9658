//! The modes in which a name can be held.

use std::fmt;

/// The mode in which a name is held, or to be held.
///
/// Exclusive and shared belong to one kind of lock: claims of both modes can hold or wait for one name. Permits are
/// another kind: while a name has holders or waiters of one kind or limit, a claim of another kind or limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Excludes every other hold.
    Exclusive,
    /// Excludes exclusive holds only.
    Shared,
    /// `count` of `limit` permits; 1 <= count <= limit.
    Permits {
        /// How many permits this hold takes.
        count: u32,
        /// How many permits there are in all.
        limit: u32,
    },
}

/// Each [`Mode`] once more, for the other packages of this project: a `match` on it has no arm for modes of a later
/// release. So a new mode does not compile before every engine says what it does with that mode.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownMode {
    Exclusive,
    Shared,
    Permits { count: u32, limit: u32 },
}

impl Mode {
    /// This mode, for a `match` that must not compile when there is a new mode.
    #[doc(hidden)]
    #[must_use]
    pub const fn known(self) -> KnownMode {
        match self {
            Self::Exclusive => KnownMode::Exclusive,
            Self::Shared => KnownMode::Shared,
            Self::Permits { count, limit } => KnownMode::Permits { count, limit },
        }
    }

    /// The limit of a semaphore; `None` for the two lock modes.
    ///
    /// ```
    /// use leasehold::Mode;
    /// assert_eq!(Mode::Permits { count: 2, limit: 8 }.limit(), Some(8));
    /// assert_eq!(Mode::Exclusive.limit(), None);
    /// ```
    #[must_use]
    pub const fn limit(self) -> Option<u32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// True when claims of both modes may hold or wait on one name at the same time: same kind of lock, same limit.
    #[doc(hidden)]
    #[must_use]
    pub fn same_kind(self, other: Self) -> bool {
        self.limit() == other.limit()
    }

    /// The mode of a name with concurrent holders, for display: permits are summed.
    #[doc(hidden)]
    #[must_use]
    pub const fn combined_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Permits { count: sum, limit }, Self::Permits { count, .. }) => {
                Self::Permits { count: sum.saturating_add(count), limit }
            }
            _ => self,
        }
    }

    /// The word that `show --json` prints.
    ///
    /// ```
    /// assert_eq!(leasehold::Mode::Shared.word(), "shared");
    /// ```
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permits { .. } => "permit",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits { count, limit } => write!(f, "{count} of {limit} permits"),
            mode => f.write_str(mode.word()),
        }
    }
}

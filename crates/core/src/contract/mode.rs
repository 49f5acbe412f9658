//! How a name is held.

use std::fmt;

/// How a name is held, or is to be held.
///
/// Exclusive and shared holds belong to one kind of lock and may be mixed on one name. Permits are another kind:
/// while a name has holders or waiters of one kind, or of another limit, a claim of the other is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Excludes every other hold.
    Exclusive,
    /// Excludes exclusive holds only.
    Shared,
    /// `count` of `limit` places; 1 <= count <= limit.
    Permits {
        /// How many places this hold takes.
        count: u32,
        /// How many places there are in all.
        limit: u32,
    },
}

impl Mode {
    /// The limit of a semaphore; `None` for the two lock modes.
    #[must_use]
    pub const fn limit(self) -> Option<u32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// True when both may stand on one name at the same time as holds or waiters: same kind of lock, same limit.
    #[must_use]
    pub fn same_kind(self, other: Self) -> bool {
        self.limit() == other.limit()
    }

    /// One mode for holders that stand beside each other: permits are summed.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        match (self, other) {
            (Self::Permits { count: sum, limit }, Self::Permits { count, .. }) => {
                Self::Permits { count: sum.saturating_add(count), limit }
            }
            _ => self,
        }
    }

    /// The word that `show --json` prints.
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

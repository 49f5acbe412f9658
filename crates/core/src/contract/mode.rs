//! The modes in which a name can be held.

use std::fmt;

/// The mode in which a name is held, or to be held.
///
/// Exclusive and shared belong to one kind of lock: claims of both modes can hold or wait for one name. Permits are
/// another kind: while a name has holders or waiters of one kind or limit, a claim of another kind or limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Mode {
    /// The limit of a semaphore; `None` for the two lock modes.
    #[must_use]
    pub const fn limit(self) -> Option<u32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// True when claims of both modes may hold or wait on one name at the same time: same kind of lock, same limit.
    #[must_use]
    pub fn same_kind(self, other: Self) -> bool {
        self.limit() == other.limit()
    }

    /// The mode of a name with concurrent holders, for display: permits are summed.
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

//! Fencing tokens: the strictly growing number of a grant.

use std::{cmp::Ordering, fmt};

/// Which run of numbers a token belongs to: it changes when the store of the counter is replaced or restored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lineage {
    // Two halves are aligned like the number beside them: a token of 24 bytes instead of 32 in every hold.
    high: u64,
    low: u64,
}

impl Lineage {
    /// The run with this number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.get())
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of a grant. Within one name and lineage every later grant has a larger one, so a resource that
/// remembers the largest token it has seen can refuse writes of a holder that was overtaken
/// (Kleppmann, "How to do distributed locking", 2016).
///
/// Tokens of two lineages are not comparable: `partial_cmp` answers `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The run of numbers.
    pub lineage: Lineage,
    /// The number itself, from 1.
    pub number: u64,
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.lineage == other.lineage).then(|| self.number.cmp(&other.number))
    }
}

/// Displays the number alone, as `LEASEHOLD_TOKEN` carries it.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number, f)
    }
}

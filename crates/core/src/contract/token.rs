//! Fencing tokens: the strictly growing numbers of grants.

use std::{cmp::Ordering, fmt};

/// The sequence to which a token belongs: it changes when the store of the token counter is replaced or restored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lineage {
    // Two `u64` halves, because a `u128` has a larger alignment: with them a token takes 24 bytes instead of 32 in
    // every hold.
    high: u64,
    low: u64,
}

impl Lineage {
    /// The lineage with this number.
    ///
    /// ```
    /// let lineage = leasehold::Lineage::new(17);
    /// assert_eq!(lineage.get(), 17);
    /// ```
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }

    /// Its number.
    ///
    /// ```
    /// assert_eq!(leasehold::Lineage::new(17).get(), 17);
    /// ```
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

/// The number of a grant. Within one name and lineage every later grant has a larger number. A resource that remembers
/// the largest token it has seen can therefore reject writes of a holder that lost the lock to a later holder
/// (Kleppmann, "How to do distributed locking", 2016).
///
/// Tokens of two lineages are not comparable: `partial_cmp` returns `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The sequence to which the number belongs.
    pub lineage: Lineage,
    /// The number itself, starting at 1.
    pub number: u64,
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.lineage == other.lineage).then(|| self.number.cmp(&other.number))
    }
}

/// Displays the number alone, as in the environment variable `LEASEHOLD_TOKEN`.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.number, f)
    }
}

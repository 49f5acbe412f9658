//! Random numbers that are the same for the same seed.

use std::ops::RangeInclusive;

/// A stream of random numbers (SplitMix64: Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream that belongs to these words. Each part of a run has its own words, and streams are independent of
    /// each other. So when a plan is reduced, the parts that remain draw the same numbers as in the full plan.
    #[must_use]
    pub(crate) fn of(words: &[u64]) -> Self {
        let mut rng = Self(0);
        for word in words {
            rng.0 = rng.next() ^ word;
        }
        rng
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers in `range`.
    pub(crate) fn among(&mut self, range: RangeInclusive<u64>) -> u64 {
        // The remainder makes some numbers slightly more likely than others, but far too little to show in a run.
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// Returns true in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One element of `from`.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[(self.next() % from.len() as u64) as usize]
    }
}

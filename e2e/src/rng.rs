//! Repeatable random numbers: the seed of a round decides all of them.

use std::{ops::Range, time::Duration};

/// `SplitMix64` (Steele, Lea, Flood 2014): a small generator with the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The random numbers for `part` of a round with this seed. Parts are independent of each other.
    #[must_use]
    pub fn new(seed: u64, part: u64) -> Self {
        let mut rng = Self(seed ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03));
        rng.roll();
        rng
    }

    /// A random seed.
    ///
    /// # Panics
    /// When the clock shows a time before 1970.
    #[must_use]
    pub fn random_seed() -> u64 {
        let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970");
        // The seed is short enough to be typed.
        Self::new(now.as_nanos() as u64, std::process::id().into()).below(1_000_000)
    }

    /// A number below `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    /// Returns true in `of_hundred` of a hundred cases.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    /// A random duration in milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.below(range.end - range.start))
    }

    /// One element of `all`.
    ///
    /// # Panics
    /// When it is empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// The next 64 random bits.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

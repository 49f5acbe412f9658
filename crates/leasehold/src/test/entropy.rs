//! Random numbers that a seed determines.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Entropy;

/// `SplitMix64` (Steele, Lea, Flood 2014): the same numbers on every machine.
pub(super) struct Seeded(AtomicU64);

/// The step between two states of the generator.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Seeded {
    /// The numbers of the process with this number in a kit with this seed.
    pub(super) fn of_process(seed: u64, number: u64) -> Self {
        let first = Self(AtomicU64::new(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)));
        Self(AtomicU64::new(first.next()))
    }

    fn next(&self) -> u64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        state ^ (state >> 31)
    }
}

impl Entropy for Seeded {
    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
    }
}

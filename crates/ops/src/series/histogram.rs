//! A histogram of durations.

use std::time::Duration;

/// The upper bounds of the buckets: from the time of a lock on this machine to the time of a long job.
pub(super) const BUCKETS: [Duration; 12] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(1800),
    Duration::from_secs(3600),
];

/// How many durations were recorded, by their length.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// The durations of each bucket that are in no smaller bucket, and last those that are in no bucket.
    counts: [u64; BUCKETS.len() + 1],
    sum: Duration,
}

impl Histogram {
    pub(super) fn record(&mut self, duration: Duration) {
        let bucket = BUCKETS.iter().position(|bound| duration <= *bound).unwrap_or(BUCKETS.len());
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.sum = self.sum.saturating_add(duration);
    }

    /// For each bucket how many durations are at most its bound, and last how many there are.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0_u64, |total, count| {
            *total = total.saturating_add(*count);
            Some(*total)
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.cumulative().last().unwrap_or_default()
    }

    pub(super) const fn sum(&self) -> Duration {
        self.sum
    }
}
